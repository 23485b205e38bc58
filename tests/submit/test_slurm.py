"""A grid on Slurm, as submitit submits it; Slurm's own commands are a stand-in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from submit_grid import GUESS, Grid, until

pytest.importorskip("submitit", reason="the extra slurm")

Said = pytest.CaptureFixture[str]


def sbatch_lines(script: str) -> dict[str, str]:
    """The options of a batch script."""
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if "#SBATCH" in line]
    pairs = [line.partition("=") for line in lines]
    assert len({key for key, _, _ in pairs}) == len(pairs), "an option stands there twice"
    return {key: "".join(shlex.split(value)) for key, _, value in pairs}


def test_the_batch_script_is_one_array_with_what_was_asked_for(grid: Grid) -> None:
    (grid.slurm / "held").touch()
    options = ("--partition", "gpu", "--gpus", "2", "--cpus", "8", "--mem", "64G")
    more = ("--slurm", "account=a b", "--slurm", "exclusive", "--slurm", "mail-type=END")
    assert grid.submit(*options, *more, "--at-most", "2", seeds=(0, 1, 2)) == 0
    asked = sbatch_lines(grid.script())
    wanted = {
        "array": "0-2%2",
        "partition": "gpu",
        "time": "60",
        "gpus-per-node": "2",
        "cpus-per-task": "8",
        "mem": "64G",
        "nodes": "1",
        "ntasks-per-node": "1",
        "signal": "USR2@600",
        "job-name": "gem-core",
        "account": "a b",
        "exclusive": "",
        "mail-type": "END",
        "open-mode": "append",
    }
    assert {key: asked.get(key) for key in wanted} == wanted
    (command,) = [line for line in grid.script().splitlines() if line.startswith("srun ")]
    words = shlex.split(command)
    assert "--cpus-per-task=8" in words
    jobs = str(grid.out / "submitit")
    assert words[-5:] == [sys.executable, "-u", "-m", "submitit.core._submit", jobs]
    assert asked["output"] == f"{jobs}/%A_%a_0_log.out" and "error" not in asked


def test_one_cell_is_a_job_without_an_array_and_options_can_replace_the_name(grid: Grid) -> None:
    (grid.slurm / "held").touch()
    assert grid.submit("--slurm", "job-name=mine", seeds=(7,)) == 0
    asked = sbatch_lines(grid.script())
    assert "array" not in asked and asked["job-name"] == "mine"
    assert "gpus-per-node" not in asked  # the profile tiny is for CPUs


def test_a_dry_run_prints_commands_and_parameters_and_makes_nothing(
    grid: Grid, capsys: Said
) -> None:
    assert grid.submit("--dry-run", "--set", "train.steps=2", "--trust", "--gpus", "1") == 0
    said = capsys.readouterr().out.splitlines()
    python = os.environ["GEM_CORE_PYTHON_TRL"]
    assert said[0] == f"# {GUESS}/trl/rebn/seed0"
    assert shlex.split(said[1]) == [
        *(python, "-m", "gem_core.cli", "train", GUESS, "--trainer", "trl", "--profile", "tiny"),
        *("--set", "seed=0", "--set", "train.steps=2", "--trust"),
        *("--run", str(grid.folder(0)), "--resume"),
    ]
    assert said[2] == f"# {GUESS}/trl/rebn/seed1" and len(said) == 5
    assert "time=60" in said[4] and "gpus_per_node=1" in said[4]
    assert not grid.out.exists() and not list(grid.slurm.iterdir())


def test_jobs_wait_run_and_finish_and_the_numbers_are_said(grid: Grid, capsys: Said) -> None:
    (grid.slurm / "held").touch()
    assert grid.submit() == 0
    said = capsys.readouterr().out
    assert f"{GUESS}/trl/rebn/seed0: job 100_0" in said and "seed1: job 100_1" in said
    assert grid.status() == 0
    assert "2 cells: 2 waiting" in capsys.readouterr().out
    assert grid.submit() == 0  # what waits is not submitted again
    assert "0 to submit" in capsys.readouterr().out and not (grid.slurm / "200.sh").exists()


def test_with_wait_every_cell_is_finished_by_its_own_process(grid: Grid, capsys: Said) -> None:
    assert grid.submit("--wait") == 0
    assert "2 cells: 2 finished" in capsys.readouterr().out
    assert [len(grid.starts(seed)) for seed in (0, 1)] == [1, 1]
    until(lambda: (grid.slurm / "100_1").read_text() == "COMPLETED")
    (job,) = [json.loads((grid.folder(1) / "job.json").read_text())]
    assert job == {"cluster": "slurm", "job": "100_1"}


def test_a_finished_cell_is_skipped_and_counted(grid: Grid, capsys: Said) -> None:
    assert grid.submit("--wait", seeds=(0,)) == 0
    capsys.readouterr()
    assert grid.submit("--wait") == 0
    said = capsys.readouterr().out
    assert "2 cells: 1 finished, 1 new; 1 to submit" in said
    assert [len(grid.starts(seed)) for seed in (0, 1)] == [1, 1]
    assert "array" not in sbatch_lines(grid.script(200))
    assert grid.submit("--dry-run") == 0
    assert "seed0 (finished: it would be skipped)" in capsys.readouterr().out


def test_a_failed_cell_says_why_and_is_submitted_again_only_when_asked(
    grid: Grid, capsys: Said
) -> None:
    grid.behave(1, "fails")
    assert grid.submit("--wait") == 1
    assert "seed1: failed, RuntimeError: out of luck" in capsys.readouterr().out
    assert grid.status() == 0
    said = capsys.readouterr().out
    assert "seed1: failed, RuntimeError: out of luck" in said
    assert "2 cells: 1 finished, 1 failed" in said
    assert grid.submit("--wait") == 1
    assert len(grid.starts(1)) == 1
    grid.behave(1, "")
    assert grid.submit("--wait", "--retry-failed") == 0
    assert len(grid.starts(1)) == 2 and not (grid.folder(1) / "failed.json").exists()


def test_a_job_that_slurm_does_not_know_yet_waits(grid: Grid, capsys: Said) -> None:
    grid.behave(0, "fails")
    assert grid.submit("--wait", seeds=(0,)) == 1
    for name in ("held", "silent"):
        (grid.slurm / name).touch()
    assert grid.submit("--retry-failed", seeds=(0,)) == 0
    capsys.readouterr()
    assert grid.status() == 0
    said = capsys.readouterr().out
    assert "seed0: waiting, Slurm does not say" in said and "1 cell: 1 waiting" in said


def test_without_accounting_the_files_say_that_a_cell_runs(grid: Grid, capsys: Said) -> None:
    (grid.slurm / "silent").touch()
    grid.behave(0, "waits")
    assert grid.submit(seeds=(0,)) == 0
    until(lambda: grid.trains(0))
    capsys.readouterr()
    assert grid.status() == 0
    assert "seed0: running, Slurm does not say" in capsys.readouterr().out
    os.killpg(grid.starts(0)[0]["job"], signal.SIGUSR2)
    until(lambda: grid.finished(0))


def test_before_the_time_limit_a_cell_saves_and_goes_on_in_the_queue(
    grid: Grid, capsys: Said
) -> None:
    """Slurm sends SIGUSR2; submitit queues the job again, and the run is resumed."""
    grid.behave(0, "waits")
    assert grid.submit(seeds=(0,)) == 0
    until(lambda: grid.trains(0))
    os.killpg(grid.starts(0)[0]["job"], signal.SIGUSR2)
    until(lambda: grid.finished(0))
    assert len(grid.starts(0)) == 2 and len({start["job"] for start in grid.starts(0)}) == 2
    assert "was stopped after step 1" in (grid.folder(0) / "log.txt").read_text()
    until(lambda: (grid.slurm / "100").read_text() == "COMPLETED")
    assert not (grid.slurm / "200.sh").exists()
    capsys.readouterr()
    assert grid.status() == 0 and "1 finished" in capsys.readouterr().out


def test_a_cancelled_cell_saves_and_the_next_submission_goes_on(grid: Grid, capsys: Said) -> None:
    grid.behave(0, "waits")
    assert grid.submit(seeds=(0,)) == 0
    until(lambda: grid.trains(0))
    assert grid.status() == 0 and "seed0: running" in capsys.readouterr().out
    os.killpg(grid.starts(0)[0]["job"], signal.SIGTERM)
    until(lambda: (grid.slurm / "100").read_text() == "FAILED")
    assert grid.status() == 0
    assert "seed0: stopped" in capsys.readouterr().out
    assert not (grid.folder(0) / "failed.json").exists()
    assert grid.submit("--wait", seeds=(0,)) == 0
    assert "goes on where it was stopped" in capsys.readouterr().out
    assert len(grid.starts(0)) == 2


def test_a_job_that_the_cluster_ended_is_named_with_its_word(grid: Grid, capsys: Said) -> None:
    (grid.slurm / "held").touch()
    assert grid.submit(seeds=(0,)) == 0
    (grid.slurm / "100").write_text("OUT_OF_MEMORY")
    grid.folder(0).joinpath("log.txt").write_text("step 4\n")
    capsys.readouterr()
    assert grid.status() == 0
    assert "seed0: stopped, Slurm: OUT_OF_MEMORY; step 4" in capsys.readouterr().out


def test_what_sbatch_refuses_is_one_line_and_leaves_no_job(grid: Grid, capsys: Said) -> None:
    (grid.slurm / "refused").touch()
    assert grid.submit("--partition", "nowhere") == 2
    error = capsys.readouterr().err
    assert "invalid partition specified: nowhere" in error and error.count("\n") == 1
    (grid.slurm / "refused").unlink()
    assert grid.submit("--wait") == 0
    assert "2 cells: 2 new; 2 to submit" in capsys.readouterr().out


def test_a_run_of_another_recipe_is_not_touched(grid: Grid, capsys: Said) -> None:
    assert grid.submit("--wait", seeds=(0,)) == 0
    capsys.readouterr()
    assert grid.submit("--set", "algorithm.gamma=0.1") == 2
    assert "algorithm.gamma = 0.9, not 0.1" in capsys.readouterr().err
    assert not (grid.slurm / "200.sh").exists()


def test_a_relative_recipe_is_found_where_the_command_was_given(
    grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text('name = "own"\n[[env]]\nid = "game:Hangman-v0-easy"\n')
    monkeypatch.chdir(tmp_path)
    assert grid.submit("--wait", seeds=(0,), recipe="own.toml") == 0
    assert (grid.out / "own" / "trl" / "rebn" / "seed0" / "result.json").exists()


def test_two_submissions_at_a_time_are_refused(grid: Grid, capsys: Said) -> None:
    from gem_core.runs.directory.lock import hold

    with hold(grid.out / "submit.lock", str):
        assert grid.submit() == 2
    assert "is in use by process" in capsys.readouterr().err
