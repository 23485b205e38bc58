"""Task folders of Terminal-Bench and Harbor: read, refused where incomplete or without docker."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gem_core.envs.terminal.harbor import TaskFolderEnv, engine, read_task
from gem_core.errors import DataError, GemError

TOML = "[agent]\ntimeout_sec = 90.0\n[verifier]\ntimeout_sec = 30.0\n"
YAML = "instruction: |-\n  Make a file.\ndifficulty: easy\nmax_agent_timeout_sec: 90\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def harbor(tmp_path: Path) -> Path:
    return write(
        tmp_path / "make-a-file",
        {
            "task.toml": TOML,
            "instruction.md": "Make a file.\n",
            "environment/Dockerfile": "FROM debian\n",
            "tests/test.sh": "test -f /file && echo 1 > /logs/verifier/reward.txt\n",
        },
    )


@pytest.fixture
def terminal_bench(tmp_path: Path) -> Path:
    return write(
        tmp_path / "make-a-file",
        {
            "task.yaml": YAML,
            "Dockerfile": "FROM debian\n",
            "run-tests.sh": "test -f /file\n",
            "tests/test_outputs.py": "",
        },
    )


def test_a_task_of_harbor_is_read(harbor: Path) -> None:
    task = read_task(harbor)
    assert (task.form, task.name) == ("harbor", "make-a-file")
    assert task.instruction == "Make a file.\n" and task.image == harbor / "environment"
    assert (task.agent_s, task.tests_s, task.network) == (90.0, 30.0, False)


def test_a_task_of_terminal_bench_is_read(terminal_bench: Path) -> None:
    task = read_task(terminal_bench)
    assert (task.form, task.instruction) == ("terminal-bench", "Make a file.")
    assert (task.agent_s, task.tests_s) == (90.0, 600.0)


@pytest.mark.parametrize("missing", ["environment/Dockerfile", "instruction.md", "task.toml"])
def test_an_incomplete_folder_is_refused(harbor: Path, missing: str) -> None:
    (harbor / missing).unlink()
    with pytest.raises(DataError):
        read_task(harbor)


def test_broken_files_are_refused(harbor: Path, terminal_bench: Path) -> None:
    (harbor / "task.toml").write_text("[agent\n")
    (harbor / "task.yaml").unlink(missing_ok=True)
    with pytest.raises(DataError, match="cannot be read"):
        read_task(harbor)
    (harbor / "task.toml").unlink()
    (harbor / "task.yaml").write_text("- a list\n")
    with pytest.raises(DataError, match="cannot be read"):
        read_task(harbor)


def test_without_an_engine_the_refusal_says_what_to_do(
    harbor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(GemError, match="docker is not installed; podman is not installed"):
        engine()
    command = commands / "docker"
    command.write_text("#!/bin/sh\necho 'no daemon answers' >&2\nexit 1\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(GemError, match=r"no daemon answers.*Start docker"):
        TaskFolderEnv(folder=str(harbor))


def test_it_is_played_where_an_engine_runs_and_refused_elsewhere(harbor: Path) -> None:
    """Runs a container on machines that can; elsewhere the refusal is all that there is to test."""
    try:
        engine()
    except GemError as refusal:
        with pytest.raises(GemError) as raised:
            TaskFolderEnv(folder=os.fspath(harbor))
        assert str(raised.value) == str(refusal)
        return
    env = TaskFolderEnv(folder=os.fspath(harbor))
    env.reset(seed=0)
    assert env.step("<answer>echo hi; exit 3</answer>")[0] == "hi\n[exit status 3]"
    env.step("<answer>touch /file</answer>")
    assert env.step("<answer>submit</answer>")[4]["success"]
    env.close()
