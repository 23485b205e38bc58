"""``gem-core train --dry-run``: what is printed and refused, and that nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import check, list_trainers, resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
from plain_trainer import install

LINE = ("train", "guess-the-number-easy", "--profile", "tiny", "--dry-run", "--trainer")
TRAINERS = ("oat", "openrlhf", "rl2", "trl", "verl")


def files(*folders):
    """Return every path below the folders, with its time of change."""
    return {path: path.stat().st_mtime_ns for one in folders for path in one.rglob("*")}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_that_is_missing_is_said_after_what_would_be_started(gem, tmp_path, trainer):
    assert not check(list_trainers()[trainer]).ready  # or this is the test of another environment
    code, out, err = gem(*LINE, trainer)
    assert (code, err) == (1, "") and list(tmp_path.iterdir()) == []
    assert f"runs/guess-the-number-easy-{trainer}-seed0: new" in out
    assert "60 steps of 96 episodes (5760 in all), on a CPU" in out
    assert "game:GuessTheNumber-v0-easy: " in out and out.count("Cannot start here") == 1
    # RL2's translation depends on the version that is installed.
    assert ("0.001" if trainer != "rl2" else "not known here") in out.split("settings")[1]
    assert f"Cannot start here: Trainer {trainer!r} cannot run here" in out


@pytest.fixture
def plain(tmp_path):
    """Run ``gem-core`` where the example trainer is installed, whose package stands in for torch.

    It gives exit code, both outputs, and the files of the home and of the folder that changed.
    """
    site, home, here = (tmp_path / name for name in ("site", "home", "here"))
    site.mkdir()
    install(site)
    info = site / "torch-2.6.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6\n")
    home.mkdir()
    here.mkdir()
    own = {"HOME": str(home), "TMPDIR": str(home), "GEM_CORE_CACHE": str(home / "cache")}
    paths = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, **own, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words):
        before = files(home, here)
        done = subprocess.run(
            [sys.executable, "-m", "gem_core", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            cwd=here,
            env=variables,
        )
        after = files(home, here)
        changed = {path for path in before.keys() | after if before.get(path) != after.get(path)}
        return done.returncode, done.stdout, done.stderr, changed

    run.here = here
    return run


def test_a_run_that_could_start_is_printed_and_nothing_is_written(plain):
    code, out, err, changed = plain(*LINE, "plain", "--run", "runs/new", "--set", "train.steps=7")
    assert (code, err, changed) == (0, "", set())
    assert "Cannot start" not in out
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()[1:]}
    assert lines["trainer"] == "torch 2.6 (tested: >=2.6,<3)"
    assert lines["run"] == "folder   runs/new: new"
    assert lines["training"] == "7 steps of 96 episodes (672 in all), on a CPU"
    assert lines["evaluation"] == "500 episodes before and after, by hf"
    assert lines["starts"] == "no program: training is in the process of gem-core"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "batch.max_tokens_per_device=64"), "batch.max_tokens_per_device"),
        (("--set", "algorithm.estimatr=rebn"), "Did you mean 'algorithm.estimator',"),
        (("--set", "trainer.plain.learning_rat=1"), "trainer.plain.learning_rat"),
        (("--set", "env.0.kwargs.max_turnz=3"), "max_turnz"),
        (("--profile", "tyni"), "No profile 'tyni'"),
        (("--set", "model.path=./absent"), "does not exist"),
        (("--trainer", "plian"), "Did you mean 'plain'?"),
    ],
)
def test_what_is_refused_is_the_line_of_train_itself(plain, words, message):
    """The two differ in nothing but the option, and neither leaves anything."""
    code, out, err, changed = plain(*LINE, "plain", *words)
    assert (code, out, changed) == (2, "", set())
    assert message in err and len(err.splitlines()) == 1
    without = [word for word in LINE if word != "--dry-run"]
    if "./absent" not in str(words):  # train asks for torch before it looks for a model
        assert plain(*without, "plain", *words)[::2] == (2, err)


@pytest.fixture
def begun(plain):
    """A run of three steps that was stopped."""
    recipe = load_recipe("guess-the-number-easy", "tiny")
    run = RunDir.create(plain.here / "run", recipe, "plain")
    for step in (1, 2, 3):
        run.log(step, {"success/mean": 0.5})
    return run


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "run already holds a run. Continue it with --resume"),
        (("--resume",), 0, "run: 3 steps are logged; training would continue after its last"),
        (("--overwrite",), 0, "run: the run in it would be deleted"),
        (("--resume", "--set", "seed=1"), 2, "was started with another recipe"),
    ],
)
def test_a_folder_that_holds_a_run_stays_as_it_is(plain, begun, words, code, message):
    status, out, err, changed = plain(*LINE, "plain", "--run", "run", *words)
    assert (status, changed) == (code, set()), out + err
    assert message in " ".join((out + err).split())


@pytest.mark.parametrize(("file", "state"), [("result.json", "finished"), ("trained.json", "tr")])
def test_what_is_left_of_a_run_is_said(plain, begun, file, state):
    (begun.path / file).write_text("{}")
    begun.model.mkdir()
    code, out, _, changed = plain(*LINE, "plain", "--run", "run", "--resume")
    assert (code, changed) == (0, set()) and f"run: {state}" in " ".join(out.split())


def test_data_and_trackers_that_are_missing_are_all_said(gem, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    table = 'track.to=["wandb"]', "env.0.id=math:GSM8K", "eval.engine=vllm"
    code, out, _ = gem(*LINE, "trl", *(word for one in table for word in ("--set", one)))
    problems = [line for line in out.splitlines() if line.startswith("Cannot start here: ")]
    assert code == 1 and len(problems) == 4, out
    assert "wandb" in out and "vLLM is not in this environment" in out
    assert "\nenvironment " not in out and list(tmp_path.iterdir()) == []


def test_adapters_say_which_program_they_start(tmp_path):
    """It is the function that their launchers ask."""
    recipe = load_recipe("guess-the-number-easy", "paper", ["hardware.gpus_per_node=2"])
    known = list_trainers()
    words = resolve(known["trl"].command)(recipe, RunDir(tmp_path), False)
    assert words[1:4] == ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    assert words[-2:] == [str(tmp_path), "--resume"]
    assert resolve(known["trl"].command)(load_recipe("chain-sum", "tiny"), RunDir("x"), False) == []
    assert known["openrlhf"].command == ""  # its command line is run in the process of gem-core
    assert all(known[name].command for name in ("oat", "rl2", "verl"))
