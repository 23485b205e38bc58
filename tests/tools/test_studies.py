"""``benchmarks/studies``: each condition runs in its trainer's environment; its page is current."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "studies"


@pytest.fixture
def studies(monkeypatch):
    """The program; other benchmarks have modules of the names ``run`` and ``page``, too."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "page", raising=False)
    spec = util.spec_from_file_location("studies_run", FOLDER / "run.py")
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "studies_run", module)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("page", None)


@pytest.fixture
def started(studies, monkeypatch):
    """The commands that the program starts for a study, beside the page."""
    commands = []
    monkeypatch.setattr(studies, "trainer_python", lambda name: f"python-of-{name}")
    monkeypatch.setattr(studies.subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setattr(studies.provenance, "check_option", lambda *_: None)
    monkeypatch.setattr(studies, "record", lambda run, target: None)
    monkeypatch.setattr(studies, "write_page", lambda path, sections: None)

    def start(*options, study="gamma"):
        commands.clear()
        monkeypatch.setattr(sys, "argv", ["run.py", "--studies", study, *options])
        assert studies.main() == 0
        return commands

    return start


def test_a_condition_runs_in_the_environment_of_its_trainer(started, tmp_path):
    commands = started("--record", str(tmp_path))
    pairs = [(line[0], line[line.index("--trainer") + 1]) for line in commands]
    assert all(python == f"python-of-{trainer}" for python, trainer in pairs)
    trainers = [trainer for _, trainer in pairs]
    assert trainers.count("trl") == 18  # six conditions, three seeds
    assert [trainers.count(name) for name in ("verl", "openrlhf", "oat", "rl2")] == [2] * 4
    one = next(line for line in commands if "verl" in line)
    assert {"algorithm.gamma=0.9", "seed=0", "guess-the-number-easy"} <= set(one)


def test_a_study_has_its_profile(started, tmp_path):
    profiles = {}
    for study in ("gamma", "staleness"):
        lines = started("--record", str(tmp_path), study=study)
        profiles[study] = {line[line.index("--profile") + 1] for line in lines}
    assert profiles == {"gamma": {"tiny"}, "staleness": {"learn"}}


def test_finished_cells_and_other_seeds_are_left_out(started, tmp_path):
    done = tmp_path / "gamma" / "gamma-1-verl" / "seed0"
    done.mkdir(parents=True)
    (done / "result.json").write_text("{}")
    trainers = [line[line.index("--trainer") + 1] for line in started("--record", str(tmp_path))]
    assert trainers.count("verl") == 1
    lines = started("--record", str(tmp_path), "--seeds", "1")
    assert {line[line.index("--trainer") + 1] for line in lines} == {"trl"}


def test_the_page_is_up_to_date_and_says_what_is_missing(studies, tmp_path):
    known = studies.read_studies()
    studies.write_page(tmp_path / "page.md", studies.pages(known, studies.RESULTS))
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text == (FOLDER / "README.md").read_text(encoding="utf-8")
    studies.write_page(tmp_path / "none.md", studies.pages(known, tmp_path))
    assert "| gamma 0.9, verl | *missing* |" in (tmp_path / "none.md").read_text(encoding="utf-8")


def write_cell(studies, folder, condition, seed, success):
    """Write a finished run of the study of summaries, as a committed one is."""
    import json
    import shutil

    source = studies.RESULTS / "summaries" / "compact-trained" / "seed0"
    target = folder / "summaries" / studies.slug(condition) / f"seed{seed}"
    shutil.copytree(source, target)
    result = json.loads((target / "result.json").read_text())
    result["after"]["success/mean"] = success
    (target / "result.json").write_text(json.dumps(result))
    recipe = json.loads((target / "recipe.json").read_text())
    (target / "recipe.json").write_text(json.dumps({**recipe, "seed": seed}))


def test_pairs_are_compared_on_the_seeds_that_both_have(studies, tmp_path):
    for seed, success in ((0, 0.9), (1, 0.5), (2, 0.7)):
        write_cell(studies, tmp_path, "compact, trained", seed, success)
    for seed, success in ((1, 0.4), (0, 0.4), (3, 0.1)):
        write_cell(studies, tmp_path, "compact, frozen", seed, success)
    known = {"summaries": studies.read_studies()["summaries"]}
    studies.write_page(tmp_path / "page.md", studies.pages(known, tmp_path))
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| compact, trained - compact, frozen | 0, 1 | +0.300 ± 2.541 | +0.50, +0.10 |" in text
    assert "| compact, frozen - window of nine turns | *missing* |  |  |" in text


def test_a_pair_of_an_unknown_condition_is_refused(studies):
    import msgspec

    text = '[study.a]\ntitle = "A"\ntext = ""\npairs = [["x", "y"]]\n'
    text += '[study.a.condition.x]\nrecipe = "doors"\n'
    with pytest.raises(msgspec.ValidationError, match="A: pairs has no condition y"):
        msgspec.toml.decode(text, type=studies.Studies)
