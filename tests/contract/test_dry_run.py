"""``gem-core train --dry-run`` where the trainer is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gem_core.runs.trainers import check, get_trainer

PROGRAMS = {
    "trl": "no program: training is in the process of gem-core",
    "openrlhf": "no program: training is in the process of gem-core",
    "oat": "no program: training is in the process of gem-core",
    "verl": "-m verl.trainer.main_ppo ...",
    "rl2": "-m torch.distributed.run --standalone --nproc-per-node 1 -m gem_rl2.cpu ",
}
"""What each of them starts on a CPU."""


@pytest.fixture
def dry_run(trainer_name, tmp_path):
    """Return a function that makes a dry run in an empty folder with an empty cache.

    In a process of its own: an adapter's tests put stand-ins for GPUs into this one.
    """
    variables = {
        **os.environ,
        "GEM_CORE_CACHE": str(tmp_path / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }

    def run(*words):
        line = ("train", "guess-the-number-easy", "--trainer", trainer_name, "--dry-run", *words)
        done = subprocess.run(
            [sys.executable, "-m", "gem_core", *line],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=variables,
        )
        assert os.listdir(tmp_path) == []
        return done.returncode, " ".join(done.stdout.split()), done.stderr

    return run


def test_a_line_that_could_start_writes_nothing(dry_run, trainer_name):
    code, out, err = dry_run("--profile", "tiny", "--set", "train.steps=7")
    assert code == 0, err
    version = check(get_trainer(trainer_name)).version
    assert f"trainer {get_trainer(trainer_name).distribution} {version} " in out
    assert f"folder runs/guess-the-number-easy-{trainer_name}-seed0: new" in out
    assert "7 steps of 96 episodes (672 in all), on a CPU" in out
    assert PROGRAMS[trainer_name] in out.partition(" starts ")[2]


def test_a_line_for_gpus_is_translated_and_says_what_is_missing(dry_run):
    code, out, _ = dry_run("--profile", "paper", "--set", "hardware.gpus_per_node=2")
    assert code == 1 and "on 2 GPUs" in out and "torch finds no GPU on this machine" in out
    assert "not known here" not in out


def test_a_native_key_that_it_does_not_have_is_refused(dry_run, trainer_name):
    code, out, err = dry_run("--profile", "tiny", "--set", f"trainer.{trainer_name}.no_such_key=1")
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if line.startswith("gem-core: ")]
    assert "no_such_key" in line and "Traceback" not in err
