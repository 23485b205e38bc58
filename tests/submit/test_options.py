"""The options of ``gem-core submit``: what is read, and what is refused, in one line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from gem_core.cli import main
from gem_submit.resources import Resources, read_memory, read_name, read_option, read_time

GUESS = "guess-the-number-easy"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        *(("1", 1), ("90", 90), ("0:30", 1), ("10:00", 10), ("24:00:00", 1440), ("0:0:1", 1)),
        *(("2-0", 2880), ("2-12", 3600), ("1-0:30", 1470), ("1-1:1:1", 1502)),
    ],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(text: str, minutes: int) -> None:
    assert read_time(text) == minutes


@pytest.mark.parametrize("text", ["", "0", "0:0:0", "1h", "-5", "1:2:3:4", "1-", "infinite", "٣"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read_time(text)


def test_memory_needs_its_unit() -> None:
    assert [read_memory(text) for text in ("64G", "512mb", "1T")] == ["64G", "512M", "1T"]
    for text in ("64", "0G", "1.5G", "64 G", "64G\n#SBATCH --account=other"):
        with pytest.raises(argparse.ArgumentTypeError, match="as 64G"):
            read_memory(text)


def test_other_options_of_sbatch_are_taken_as_they_are() -> None:
    assert read_option("account=a b=c") == ("account", "a b=c")
    assert read_option("--exclusive") == ("exclusive", True)


@pytest.mark.parametrize(
    "text", ["array=0-5", "nodes=2", "signal=USR1@5", "output=/dev/null", "wrap=true", "time=5"]
)
def test_an_option_that_gem_core_sets_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=text.split("=")[0]):
        read_option(text)


@pytest.mark.parametrize("text", ["=x", "A=b", "a_b=c", "account=", "account=a\nrm -r x", "a\nb=c"])
def test_no_value_can_add_a_line_to_the_batch_script(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read_option(text)
    with pytest.raises(argparse.ArgumentTypeError):
        read_name("gpu\nrm -r x")


def test_a_cell_is_told_in_the_last_fifth_of_its_time() -> None:
    assert Resources(minutes=5).notice_s == 60
    assert Resources(minutes=6000).notice_s == 600
    assert Resources(minutes=5, notice=9).notice_s == 9


def run(*words: str) -> int:
    return main(["submit", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Name baselines and --trainers"),
        ((GUESS,), "Name baselines and --trainers"),
        ((GUESS, "--trainers", "tlr", "--time", "5"), "Did you mean 'trl'?"),
        (("gues-the-number-easy", "--trainers", "trl", "--time", "5"), f"Did you mean '{GUESS}'"),
        ((GUESS, "--trainers", "trl", "--set", "train.step=1", "--time", "5"), "'train.steps'"),
        ((GUESS, "--trainers", "trl"), "add --time"),
        ((GUESS, "--trainers", "trl", "--time", "1", "--notice", "60"), "--notice is longer"),
        ((GUESS, "--trainers", "trl", "trl", "--time", "5"), "Two cells would have the folder"),
        (
            (GUESS, "--trainers", "trl", "--set", "hardware.nodes=2", "--time", "5"),
            "one process on one node",
        ),
        (
            (
                *(GUESS, "--trainers", "oat", "--set", "hardware.sequence_parallel=2"),
                *("--set", "hardware.gpus_per_node=8", "--time", "5"),
            ),
            f"{GUESS}/oat/rebn/seed0: Oat cannot honour hardware.sequence_parallel",
        ),
        (
            (GUESS, "--trainers", "trl", "--profile", "paper", "--gpus", "4", "--time", "5"),
            "--gpus 4 is less than hardware.gpus_per_node = 8",
        ),
        (
            (
                *(GUESS, "--trainers", "trl", "--profile", "small", "--cluster", "local"),
                *("--at-most", "2"),
            ),
            "leave out --at-most",
        ),
        (("--status", "/nowhere"), "has no cells of gem-core submit"),
    ],
)
def test_a_refusal_is_one_line_before_anything_is_submitted(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TRL", "OAT"):
        monkeypatch.setenv(f"GEM_CORE_PYTHON_{name}", sys.executable)
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error
    assert not list(tmp_path.iterdir())


def test_without_submitit_the_line_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", sys.executable)
    monkeypatch.setitem(sys.modules, "submitit", None)
    words = (GUESS, "--trainers", "trl", "--profile", "tiny", "--out", str(tmp_path / "out"))
    for cluster in ("slurm", "local"):
        assert run(*words, "--time", "5", "--cluster", cluster) == 2
        error = capsys.readouterr().err
        assert error == "gem-core: gem-core submit needs submitit: pip install 'gem-core[slurm]'.\n"
    assert run(*words, "--time", "5", "--dry-run") == 0
    assert not (tmp_path / "out").exists()


def test_without_slurm_another_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit", reason="the extra slurm")
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(GUESS, "--trainers", "trl", "--time", "5", "--out", str(tmp_path / "out")) == 2
    assert "There is no sbatch on PATH" in capsys.readouterr().err


def test_the_same_gpus_for_all_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", sys.executable)
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "other.toml"
    recipe.write_text(
        'name = "other"\n[[env]]\nid = "game:GuessTheNumber-v0-easy"\n'
        "[hardware]\ngpus_per_node = 2\n[batch]\nepisodes = 64\n"
    )
    words = (str(recipe), GUESS, "--trainers", "trl", "--time", "5", "--dry-run")
    assert run(*words) == 2
    assert "different numbers of GPUs" in capsys.readouterr().err
    assert run(*words, "--gpus", "8") == 0
    assert "gpus_per_node=8" in capsys.readouterr().out
    assert run(*words[1:]) == 0
    assert "gpus_per_node=" in capsys.readouterr().out
    assert run(*words, "--slurm", "gres=gpu:8") == 0
    said = capsys.readouterr().out
    assert "gres=gpu:8" in said and "gpus_per_node" not in said
