"""`Shell`: a shell in the sandbox, kept from command to command.

Each command runs in a process and a folder of its own, confined as every program of a sandbox with
``programs=True``. What is kept between two commands is data: the files, the working folder, the
variables (not arrays) and the functions. So a shell can be copied, stored and restored anywhere; a
command that passes its deadline costs nothing but itself; and processes in the background end with
their command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.execution.sandbox.backends import get_shared_backend
from gem_core.execution.sandbox.results import SandboxError, SandboxLimits, SandboxResult
from gem_core.execution.sandbox.shell_state import check_shell

HOME = "/home/agent"
"""What a shell calls its folder."""
_PROGRAM = (Path(__file__).parent / "_shell_program.py").read_text(encoding="utf-8")
_GRACE = 3.0  # seconds for starting the shell and for reading its files
_BROKEN = ("sandbox_died", "unavailable")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "USER": "agent",
    "PAGER": "cat",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TEMPLATE_DIR": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@example.com",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@example.com",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "init.defaultBranch",
    "GIT_CONFIG_VALUE_0": "main",
    "GIT_CONFIG_KEY_1": "gc.auto",
    "GIT_CONFIG_VALUE_1": "0",
    "GIT_CONFIG_KEY_2": "advice.detachedHead",
    "GIT_CONFIG_VALUE_2": "false",
}  # fmt: skip
"""The variables of a new shell. Names and dates of commits are fixed, so that their ids are too."""


class ShellLimits(NamedTuple):
    """What a command may use, and what is kept after it.

    Attributes:
        seconds: wall seconds of a command; then it is ended, and what it wrote is kept.
        output_kb: what is kept of its output; the rest is read and dropped.
        memory_mb: memory of each process.
        processes: processes at once.
        disk_mb: what it may write.
        files: files and folders that are kept.
        files_kb: their size together.
    """

    seconds: float = 5.0
    output_kb: float = 64
    memory_mb: float = 256
    processes: int = 32
    disk_mb: float = 16
    files: int = 500
    files_kb: float = 1024


class ShellResult(NamedTuple):
    """What came of a command.

    Attributes:
        output: what it printed, standard output and error together.
        status: its exit status, negative for a signal; ``None``: it was ended by a limit.
        error: why it was ended: ``"timeout"``, ``"too_many_files"`` or a kind of
            `gem_core.execution.sandbox.KINDS`; ``None``: it was not. After any error but
            ``"timeout"`` the files are as before it.
        seconds: wall seconds.
        truncated: whether it printed more.
        level: the level of isolation.
    """

    output: str
    status: int | None
    error: str | None
    seconds: float
    truncated: bool
    level: str


class Shell:
    """A shell with files of its own.

    Args:
        files: the files at the beginning: path -> text or bytes. Paths are relative to its folder.
        level: the sandbox's level; ``None``: the strongest that this machine offers.
        limits: what a command may use.

    Raises:
        SandboxUnavailable: at the first command, where this machine lacks the level.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        level: str | None = None,
        limits: ShellLimits | None = None,
    ):
        self.level = level
        self.limits = limits or ShellLimits()
        self._files = {path: _entry(content) for path, content in (files or {}).items()}
        self._cwd = HOME
        self._variables = ""

    def run(self, command: str) -> ShellResult:
        """Run a command, of any number of lines.

        Raises:
            SandboxError: the sandbox did not run it, for no fault of the command.
        """
        if "\0" in command:
            return ShellResult("a command has no null characters", 1, None, 0.0, False, "")
        result = self._in_sandbox(command)
        if result.error is not None:
            return ShellResult(
                "", None, result.error, result.seconds, result.truncated, result.level
            )
        answer = _answer(result)
        if answer is None:
            return ShellResult("", None, "error", result.seconds, False, result.level)
        error = "timeout" if answer["status"] is None else None
        if answer["files"] is None:
            error = "too_many_files"
        else:
            self._files = answer["files"]
            self._cwd = answer["cwd"]
            self._variables = answer["variables"]
        return ShellResult(
            answer["output"],
            answer["status"],
            error,
            result.seconds,
            answer["truncated"],
            result.level,
        )

    @property
    def files(self) -> dict[str, str]:
        """Path -> text of every file. Binary files, folders and links are not in it."""
        return {path: data for path, (kind, data, _) in self._files.items() if kind == "text"}

    @property
    def paths(self) -> list[str]:
        """The paths of all files, links and folders; those of folders end with ``/``."""
        return sorted(path + "/" * (kind == "folder") for path, (kind, _, _) in self._files.items())

    def get_state(self) -> dict[str, Any]:
        """Return all that is kept, as JSON data."""
        state = {"files": self._files, "cwd": self._cwd, "variables": self._variables}
        return deepcopy(state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned.

        Raises:
            StateError: it is something else: a path outside of the shell's folder, or below a link;
                more than a shell keeps.
        """
        check_shell(state, self.limits.files, int(self.limits.files_kb * 1024))
        self._files = deepcopy(dict(state["files"]))
        self._cwd = state["cwd"]
        self._variables = state["variables"]

    def copy(self, *, keep_variables: bool = True) -> Shell:
        """Return a shell that continues from here.

        Args:
            keep_variables: whether it has the variables, functions and working folder too, or only
                the files.
        """
        other = Shell(level=self.level, limits=self.limits)
        other._files = deepcopy(self._files)
        if keep_variables:
            other._cwd = self._cwd
            other._variables = self._variables
        return other

    def _in_sandbox(self, command: str) -> SandboxResult:
        given = self.limits
        request = {
            "command": command.encode(errors="replace").decode(),
            "files": self._files,
            "cwd": self._cwd,
            "variables": self._variables,
            "seconds": given.seconds,
            "output": int(given.output_kb * 1024),
            "most_files": given.files,
            "most_bytes": int(given.files_kb * 1024),
            "environment": _ENVIRONMENT,
        }
        limits = SandboxLimits(
            seconds=given.seconds + _GRACE,
            cpu_s=given.seconds + _GRACE,
            memory_mb=given.memory_mb,
            threads=given.processes,
            file_mb=given.disk_mb,
            disk_mb=given.disk_mb,
            output_kb=12 * (given.files_kb + given.output_kb),  # as JSON
        )
        for _ in range(2):  # a server that has died is started again
            sandbox = get_shared_backend(self.level, programs=True)
            result = sandbox.run(_PROGRAM, names={"request": request}, limits=limits)
            if result.error not in _BROKEN:
                return result
        raise SandboxError(f"The sandbox did not run the command: {result.output or result.error}")


def _answer(result: SandboxResult) -> dict[str, Any] | None:
    """Return what the program inside printed; ``None``: the command has destroyed it."""
    try:
        answer: dict[str, Any] = json.loads(result.output)
        answer["output"], answer["files"], answer["cwd"], answer["variables"], answer["truncated"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return answer if "status" in answer else None


def _entry(content: str | bytes) -> list[Any]:
    """Return a file in the form of ``_shell_program.py``."""
    import base64

    if isinstance(content, str):
        return ["text", content, False]
    return ["base64", base64.b64encode(content).decode(), False]
