"""Folders of tasks in the forms of Terminal-Bench and Harbor, played in docker.

Terminal-Bench: ``task.yaml`` (``instruction``), ``Dockerfile``, ``run-tests.sh`` and ``tests/``.
Harbor: ``task.toml``, ``instruction.md``, ``environment/Dockerfile`` and ``tests/test.sh``, which
writes a reward to ``/logs/verifier/reward.txt``.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import uuid
import weakref
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_core.envs.games.game import Game
from gem_core.errors import DataError, GemError, MissingDependencyError

if TYPE_CHECKING:
    from gem_core.env.interface import State, StepResult

SUBMIT = "submit"
ENGINES = ("docker", "podman")
_REWARD = "/logs/verifier/reward.txt"
_BUILD_S = 1800.0
_LONGEST = 8000
_LATE = 124  # exit status of timeout(1)


class TaskFolder(NamedTuple):
    """A task that was read from a folder.

    Attributes:
        name: the folder's name.
        form: ``"terminal-bench"`` or ``"harbor"``.
        instruction: the goal, as the agent reads it.
        image: the folder with the ``Dockerfile``.
        tests: the folder with the tests, copied to ``/tests`` at the end.
        run_tests: the command that runs them there.
        agent_s: seconds that the task gives an agent.
        tests_s: seconds that its tests may take.
        network: whether the task asks for the internet.
    """

    name: str
    form: str
    instruction: str
    image: Path
    tests: Path
    run_tests: str
    agent_s: float
    tests_s: float
    network: bool


def read_task(folder: str | Path) -> TaskFolder:
    """Read a task.

    Raises:
        DataError: the folder is no task in one of the two forms, or is incomplete.
        MissingDependencyError: ``task.yaml`` needs the package PyYAML.
    """
    root = Path(folder).expanduser().resolve()
    if (root / "task.toml").is_file():
        task = _read_harbor(root)
    elif (root / "task.yaml").is_file():
        task = _read_terminal_bench(root)
    else:
        raise DataError(f"{root} is no task: it has neither task.toml (Harbor) nor task.yaml.")
    for path in (task.image / "Dockerfile", task.tests):
        if not path.exists():
            raise DataError(f"The task {task.name!r} is incomplete: {path} is missing.")
    if not task.instruction.strip():
        raise DataError(f"The task {task.name!r} has no instruction.")
    return task


def _read_harbor(root: Path) -> TaskFolder:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads((root / "task.toml").read_text(encoding="utf-8"))
        instruction = (root / "instruction.md").read_text(encoding="utf-8")
        return TaskFolder(
            root.name,
            "harbor",
            instruction,
            root / "environment",
            root / "tests",
            "bash /tests/test.sh",
            float(data.get("agent", {}).get("timeout_sec", 600)),
            float(data.get("verifier", {}).get("timeout_sec", 600)),
            bool(data.get("environment", {}).get("allow_internet", False)),
        )
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"The task in {root} cannot be read: {error}") from error


def _read_terminal_bench(root: Path) -> TaskFolder:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise MissingDependencyError("task.yaml needs PyYAML: pip install pyyaml") from error
    try:
        data = yaml.safe_load((root / "task.yaml").read_text(encoding="utf-8"))
        return TaskFolder(
            root.name,
            "terminal-bench",
            str(data["instruction"]),
            root,
            root / "tests",
            "bash /tests/run-tests.sh",
            float(data.get("max_agent_timeout_sec", 600)),
            float(data.get("max_test_timeout_sec", 600)),
            False,
        )
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"The task in {root} cannot be read: {error!r}") from error


def engine() -> str:
    """Return the command of a container engine that runs here.

    Raises:
        GemError: there is none; the message says why.
    """
    reasons = []
    for name in ENGINES:
        if shutil.which(name) is None:
            reasons.append(f"{name} is not installed")
            continue
        done = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return name
        lines = done.stderr.strip().splitlines() or ["it does not run"]
        reasons.append(f"{name}: {lines[-1]}")
    raise GemError(
        "Folders of tasks are played in containers, and no engine runs here "
        f"({'; '.join(reasons)}). Start docker or podman; the ids terminal:* need neither."
    )


class TaskFolderEnv(Game):
    """Play a task of a folder in a container, without a network unless the task asks for it.

    Each action is a command, which runs in a new shell in the container's working folder;
    ``submit`` runs the task's tests, and ends the episode. A state is the commands so far, which
    are repeated.

    Args:
        folder: the folder of the task.
        seconds: wall seconds of a command.
        output_chars: characters of its output that are shown.
        network: whether the container has a network; ``None``: as the task asks for.
        max_turns: the turn budget.
        answer_format: the format of actions.
        format_error_ends: whether an action without a command ends the episode.
        **options: see `gem_core.envs.games.game.Game`.

    Raises:
        DataError: the folder is no task.
        GemError: no container engine runs here.
    """

    slow = True
    _state_fields = (*Game._state_fields, "_commands")
    _commands: list[str]

    def __init__(
        self,
        *,
        folder: str,
        seconds: float = 60.0,
        output_chars: int = 4000,
        network: bool | None = None,
        max_turns: int = 50,
        answer_format: str = "tag",
        format_error_ends: bool = False,
        **options: Any,
    ):
        super().__init__(
            max_turns=max_turns,
            answer_format=answer_format,
            format_error_ends=format_error_ends,
            **options,
        )
        self.task = read_task(folder)
        self.seconds = seconds
        self.output_chars = output_chars
        self.network = self.task.network if network is None else network
        self._engine = engine()
        self._container = ""
        self._remove: Any = None

    def random_action(self, rng: Random) -> str:
        """Return a harmless command."""
        return self._answer(rng.choice(["ls", "pwd", "whoami", SUBMIT]))

    def set_state(self, state: State) -> None:
        """Restore a state, by its commands; see `gem_core.env.interface.Env.set_state`."""
        super().set_state(state)
        self._start_container()
        for command in self._commands:
            self._execute(command)

    def _consistent(self) -> bool:
        return (
            super()._consistent()
            and len(self._commands) <= self._budget
            and all(len(command) <= _LONGEST and "\0" not in command for command in self._commands)
        )

    def _start(self) -> None:
        self._commands = []
        self._start_container()

    def _rules(self) -> str:
        return (
            "You work in a shell of a container. Reach the goal, then submit.\n"
            f"Goal: {self.task.instruction.strip()}\n"
            f"Write a command as {self._answer('command')}; you see what it prints. When the goal "
            f"is reached write {self._answer(SUBMIT)}. You have {self._budget} turns."
        )

    def _move(self, answer: str) -> StepResult:
        if answer == SUBMIT:
            return self._submit()
        if len(answer) > _LONGEST or "\0" in answer:
            return self._invalid(f"A command has at most {_LONGEST} characters, and no nulls.")
        self._commands = [*self._commands, answer]
        status, text = self._execute(answer)
        if len(text) > self.output_chars:
            text = f"{text[: self.output_chars]}\n[the rest is left out]"
        if status == _LATE:
            text += f"\n[The command was ended after {self.seconds:g} seconds.]"
        elif status:
            text += f"\n[exit status {status}]"
        return self._continue(text.strip("\n") or "[no output]", self._reward["step"])

    def _submit(self) -> StepResult:
        score = self._run_tests()
        reward = score * self._reward["success"] if score > 0 else self._reward["fail"]
        if score >= 1:
            return self._win("The tests pass.", reward)
        return self._lose("The tests do not pass.", reward, "submitted")

    def _run_tests(self) -> float:
        """Copy the tests into the container and run them; return the reward that they give."""
        self._call("cp", f"{self.task.tests}/.", f"{self._container}:/tests")
        if self.task.form == "terminal-bench":
            script = self.task.image / "run-tests.sh"
            self._call("cp", str(script), f"{self._container}:/tests/run-tests.sh")
        self._execute("mkdir -p /logs/verifier")
        status, _ = self._execute(f"TEST_DIR=/tests {self.task.run_tests}", self.task.tests_s)
        if self.task.form == "terminal-bench":
            return float(status == 0)
        written = self._execute(f"cat {_REWARD}")[1].strip()
        try:
            return min(1.0, max(0.0, float(written)))
        except ValueError:
            return 0.0

    def _start_container(self) -> None:
        self._close()
        image = f"gem-core-task-{self.task.name.lower()}"
        self._call("build", "-q", "-t", image, str(self.task.image), seconds=_BUILD_S)
        name = f"gem-core-{uuid.uuid4().hex[:12]}"
        limits = ["--memory", "4g", "--pids-limit", "512"]
        network = [] if self.network else ["--network", "none"]
        self._call(
            "run", "-d", "--rm", "--name", name, *limits, *network, image, "sleep", "infinity"
        )
        self._container = name
        self._remove = weakref.finalize(self, _remove, self._engine, name, os.getpid())
        self._call("exec", name, "mkdir", "-p", "/tests")

    def _execute(self, command: str, seconds: float | None = None) -> tuple[int, str]:
        limit = self.seconds if seconds is None else seconds
        inner = ["timeout", "-k", "5", str(limit), "bash", "-c", command]
        arguments = [self._engine, "exec", self._container, *inner]
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=limit + 30,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def _call(self, *arguments: str, seconds: float = 120.0) -> None:
        done = subprocess.run(
            [self._engine, *arguments], capture_output=True, text=True, check=False, timeout=seconds
        )
        if done.returncode:
            raise GemError(
                f"The task {self.task.name!r} cannot be played: {self._engine} {arguments[0]} "
                f"failed: {done.stderr.strip()[-500:]}"
            )

    def _close(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def _example(self) -> str:
        return "ls"


def _remove(name_of_engine: str, container: str, owner: int) -> None:
    if os.getpid() == owner:
        subprocess.run([name_of_engine, "rm", "-f", container], capture_output=True, check=False)
