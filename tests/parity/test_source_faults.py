"""Every fault of `benchmarks/parity/source_faults.py` is still a change of this source."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks" / "parity"


@pytest.fixture
def source_faults(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.delitem(sys.modules, "source_faults", raising=False)
    import source_faults

    yield source_faults
    sys.modules.pop("source_faults", None)


@pytest.fixture
def changes(source_faults, monkeypatch):
    monkeypatch.delitem(sys.modules, "changes", raising=False)
    import changes

    yield changes
    sys.modules.pop("changes", None)


def test_each_is_put_in_at_one_place_and_leaves_a_program(source_faults, tmp_path):
    assert len(source_faults.FAULTS) > 30
    for fault in source_faults.FAULTS:
        copy = tmp_path / fault.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / fault.file, copy)
        fault.put_into(tmp_path)
        text = copy.read_text(encoding="utf-8")
        assert text != (ROOT / fault.file).read_text(encoding="utf-8"), fault.name
        if copy.suffix == ".py":
            ast.parse(text, fault.file)


def test_a_place_that_is_gone_is_named(source_faults, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    fault = source_faults.Fault("gone", "trl", ("recorded runs",), "a.py", "y = 1\n", "y = 2\n")
    with pytest.raises(SystemExit, match=r"a\.py does not have this once"):
        fault.put_into(tmp_path)


def test_a_detector_of_which_no_test_runs_is_an_error_and_not_red(changes, tmp_path, monkeypatch):
    (tmp_path / "test_nothing.py").write_text("")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--slow', action='store_true')\n"
        "    parser.addoption('--trainer')\n"
    )
    monkeypatch.setitem(changes.DETECTORS, "nothing", ("test_nothing.py",))
    monkeypatch.setattr(changes, "trainer_python", lambda name: sys.executable)
    with pytest.raises(SystemExit, match="none, nothing: no test ran"):
        changes.run_detector(tmp_path, "none", "nothing")
