"""``docs/gpu_seams.md`` has each use of a trainer, with what ran of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_seams  # noqa: E402
from drift_radar import ran  # noqa: E402


@pytest.fixture(scope="module")
def records():
    return json.loads(gpu_seams.RECORDS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def uses():
    return {name: ran.uses(name) for name in gpu_seams.TITLES}


def test_each_use_has_a_record_and_the_pages_show_it(records):
    advice = "run python scripts/gpu_seams.py"
    assert gpu_seams.PAGE.read_text(encoding="utf-8") == gpu_seams.page(records), advice
    text = gpu_seams.GPU_PAGE.read_text(encoding="utf-8")
    assert text == gpu_seams.with_table(text, records), advice


@pytest.mark.parametrize("name", gpu_seams.TITLES)
def test_a_use_without_a_record_is_an_error(records, uses, name):
    found, known = uses[name], records[name]
    gpu_seams.require(name, found, known)
    path = next(path for path, state in known.items() if state != ran.ELSEWHERE)
    with pytest.raises(SystemExit, match=rf"without a record {path}; gone -.*--record {name}"):
        gpu_seams.require(name, found, {p: s for p, s in known.items() if p != path})
    with pytest.raises(SystemExit, match=r"without a record -; gone trl\.no_more"):
        gpu_seams.require(name, found, known | {"trl.no_more": ran.READ})


def test_what_was_not_recorded_is_said(records):
    known = dict.fromkeys(records["trl"], ran.READ)
    assert list(records["trl"].values()).count(ran.RUN) > 20
    changed = records | {"trl": known}
    assert f"### TRL: run here\n\n- {gpu_seams.UNKNOWN}\n" in gpu_seams.page(changed)
    assert f"| TRL | {len(known)} | {gpu_seams.UNKNOWN} | 0 |" in gpu_seams.table(changed)


def named_tests(text):
    """The tests that a page names as ``file::test``, where the file may be the one before."""
    file = None
    for path, test in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", text):
        file = path or file
        yield file, test


def test_the_tests_that_the_page_names_exist():
    found = list(named_tests(gpu_seams.GPU_PAGE.read_text(encoding="utf-8")))
    assert len(found) > 20
    missing = [
        (file, test)
        for file, test in found
        if f"\ndef {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert not missing


SOURCE = '''\
from base import Base, done, loose


class Mine(Base):
    def over(self):
        """Text."""
        return self.ready

    def never(self):
        return loose(
            self,
            1,
        )


Mine().over()


def alone():
    done.set()
'''
BASE = """\
import threading

done = threading.Event()


class Base:
    ready = 1


def loose(*_):
    return 2
"""


def test_the_recorder_sees_the_lines_that_run_and_no_others(tmp_path, monkeypatch):
    adapter = tmp_path / "integrations" / "gem_x"
    adapter.mkdir(parents=True)
    (adapter / "mine.py").write_text(SOURCE)
    (tmp_path / "base.py").write_text(BASE)
    lines = tmp_path / "lines"
    lines.mkdir()
    own = {
        "PYTHONPATH": f"{ROOT / 'scripts' / 'seam_lines'}{os.pathsep}{tmp_path}",
        "GEM_CORE_SEAM_LINES": str(lines),
        "GEM_CORE_SEAM_SOURCE": f"{adapter}{os.sep}",
    }
    own["PYTHONPATH"] += f"{os.pathsep}{adapter}"
    program = "import _thread, mine; _thread.start_new_thread(mine.alone, ()); mine.done.wait()"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **own}, check=True)
    monkeypatch.setattr(ran, "ROOT", tmp_path)
    seen = ran.executed(lines)
    file = adapter / "mine.py"
    found = {
        "over": (5, True),  # the definition of a method: its body must run
        "ready": (7, False),
        "never": (9, True),
        "loose": (10, False),
        "self": (11, False),  # inside of the same statement
        "alone": (20, True),  # in a thread that has no object of Python's
    }
    places = {
        name: [ran.Place("mine.py", ran.statement(file, line, body)[0])]
        for name, (line, body) in found.items()
    }
    states = ran.states(places, seen, set())
    assert states == {
        "over": ran.RUN, "ready": ran.RUN, "never": ran.READ, "loose": ran.READ, "self": ran.READ,
        "alone": ran.RUN,
    }  # fmt: skip
    assert ran.states(places, set(), seen)["over"] == ran.REHEARSED
    assert {file for file, _ in seen} == {"mine.py"}
