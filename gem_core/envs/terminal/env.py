"""`TerminalEnv`: a task that is solved with commands in a sandboxed shell."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from gem_core.env.registration.references import check_level
from gem_core.envs.games.game import Game
from gem_core.envs.task_table import tasks_of
from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.envs.terminal.tasks import TASKS
from gem_core.errors import StateError
from gem_core.execution.sandbox.results import SandboxError
from gem_core.execution.sandbox.shell import Shell, ShellLimits, ShellResult

if TYPE_CHECKING:
    from gem_core.env.interface import ResetResult, State, StepResult

SUBMIT = "submit"
"""The action that ends an episode."""
_LONGEST = 4000
"""Characters of a command."""
_SEEDS = 1 << 62
_MOST_SET_UP = 256
_set_up_files: dict[tuple[str, int, str | None], State] = {}
"""The shells after the setup of the tasks that were played last."""
_WHY = {
    "timeout": "The command was ended after {seconds:g} seconds.",
    "too_many_files": "The command was undone: it left more files than are kept.",
    "disk_limit": "The command was undone: it wrote more than is allowed.",
}  # fmt: skip


class TerminalEnv(Game):
    """Reach a goal with commands in a shell.

    Each action is a command (or several lines of them); the observation is what it printed, and its
    exit status where that is not 0. ``submit`` ends the episode: then the files are judged, and
    programs that the agent wrote are tried on inputs that it has not seen. The files, the working
    folder, variables and functions stay from command to command; processes in the background end
    with theirs. The shell has the system's programs, no network, and no files but its own. Which
    programs exist depends on the machine, so that an agent's command may print something else on
    another one.

    Args:
        group: ``"files"``, ``"text"``, ``"git"`` or ``"programs"``; ``None``: all.
        tasks: names of tasks of which one is drawn, instead of a group.
        level: the sandbox's level; ``None``: the strongest that this machine offers.
        seconds: wall seconds of a command.
        output_chars: characters of its output that are shown; the middle of a longer one is left
            out.
        max_turns: the turn budget.
        answer_format: the format of actions.
        format_error_ends: whether an action without a command ends the episode.
        **options: see `gem_core.envs.games.game.Game`.

    Raises:
        SandboxUnavailable: at reset, where this machine lacks the level.
    """

    slow = True
    _state_fields = (*Game._state_fields, "_task", "_draw")
    _task: str
    _draw: int

    def __init__(
        self,
        *,
        group: str | None = None,
        tasks: Sequence[str] | None = None,
        level: str | None = None,
        seconds: float = 5.0,
        output_chars: int = 2000,
        max_turns: int = 12,
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
        if output_chars < 1 or seconds <= 0:
            raise ValueError("output_chars and seconds must be positive.")
        self.output_chars = output_chars
        self._varies = True
        self._tasks = tasks_of(TASKS, group, tasks)
        check_level(level)
        self._level = level
        self._limits = ShellLimits(seconds=seconds)
        self._shell: Shell | None = None

    def peek(self) -> str:
        """Return the reference solution, in one action, or ``submit`` when the goal is reached."""
        if self._is_solved():
            return self._answer(SUBMIT)
        return self._answer("cd\n" + "\n".join(self._problem.solution))

    def random_action(self, rng: Random) -> str:
        """Return a harmless command."""
        path = rng.choice(sorted(self._problem.files) or ["answer.txt"])
        commands = (f"cat {path}", "ls", "pwd", f"wc -l {path}", "echo 0 > answer.txt", SUBMIT)
        return self._answer(rng.choice(commands))

    def get_state(self) -> State:
        """Return the state with that of the shell."""
        shell = self._shell
        return {**super().get_state(), "shell": None if shell is None else shell.get_state()}

    def set_state(self, state: State) -> None:
        """Restore a state; see `gem_core.env.interface.Env.set_state`."""
        super().set_state(state)
        self._shell = self._shell_of(state)

    def _check_state(self, state: State) -> None:
        super()._check_state(state)
        if self._shell_of(state) is None and state["status"] != 0:
            raise StateError("The state of a started episode has a shell.")

    def _shell_of(self, state: State) -> Shell | None:
        if state.get("shell") is None:
            return None
        shell = Shell(level=self._level, limits=self._limits)
        shell.set_state(state["shell"])
        return shell

    def _consistent(self) -> bool:
        return super()._consistent() and self._task in TASKS

    def _start(self) -> None:
        self._task = self._tasks[int(self.rng.random() * len(self._tasks))].name
        self._draw = self.rng.randrange(_SEEDS)
        self._restored()
        self._shell = Shell(self._problem.files, level=self._level, limits=self._limits)
        if self._problem.setup:
            self._set_up(self._shell)

    def _set_up(self, shell: Shell) -> None:
        """Run the task's setup; its result is kept, because seeds are played again."""
        key = (self._task, self._draw, self._level)
        if key not in _set_up_files:
            done = shell.run(self._problem.setup)
            if done.status != 0:
                raise SandboxError(
                    f"The task {self._task!r} cannot be set up on this machine: install the "
                    f"programs that it needs ({done.output.strip()!r:.300})."
                )
            while len(_set_up_files) >= _MOST_SET_UP:
                _set_up_files.pop(next(iter(_set_up_files)), None)
            _set_up_files[key] = shell.copy(keep_variables=False).get_state()
        shell.set_state(_set_up_files[key])

    def _restored(self) -> None:
        self._problem: TerminalProblem = TASKS[self._task].draw(Random(self._draw))

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        obs, info = super()._reset(options)
        return obs, {**info, "task": self._task}

    def _rules(self) -> str:
        return (
            "You work in a shell (bash). Reach the goal, then submit.\n"
            f"Goal: {self._problem.text}\n"
            f"Write a command as {self._answer('command')}; you see what it prints. When the goal "
            f"is reached write {self._answer(SUBMIT)}. You have {self._budget} turns."
        )

    def _move(self, answer: str) -> StepResult:
        if answer == SUBMIT:
            return self._submit()
        if len(answer) > _LONGEST:
            return self._invalid(f"A command has at most {_LONGEST} characters.")
        assert self._shell is not None
        result = self._shell.run(answer)
        return self._continue(self._format_result(result), self._reward["step"])

    def _submit(self) -> StepResult:
        if self._is_solved():
            return self._win("The goal is reached.", self._reward["success"])
        return self._lose("The goal is not reached.", self._reward["fail"], "submitted")

    def _is_solved(self) -> bool:
        """Return whether the files are as they must be, and the programs do what they must do."""
        assert self._shell is not None
        files = self._shell.files
        paths = {path.rstrip("/") for path in self._shell.paths}
        for path, content in self._problem.wanted.items():
            if content is None and path in paths:
                return False
            if content is not None and files.get(path, "\0").strip() != content.strip():
                return False
        for command, expected in self._problem.probes:
            tried = self._shell.copy(keep_variables=False).run(command)
            if tried.error is not None or tried.output.strip() != expected.strip():
                return False
        return True

    def _format_result(self, result: ShellResult) -> str:
        text = result.output.rstrip("\n")
        if len(text) > self.output_chars:
            first = self.output_chars // 2
            last = self.output_chars - first
            left_out = len(text) - self.output_chars
            text = f"{text[:first]}\n[... {left_out} characters are left out ...]\n{text[-last:]}"
        lines = [text] if text else []
        if result.error is not None:
            why = _WHY.get(result.error, f"The command was undone: {result.error}.")
            lines.append(f"[{why.format(seconds=self._limits.seconds)}]")
        elif result.status:
            lines.append(f"[exit status {result.status}]")
        return "\n".join(lines) or "[no output]"

    def _example(self) -> str:
        return "ls"
