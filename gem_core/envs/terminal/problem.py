"""What a task in the shell consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class TerminalProblem(NamedTuple):
    """One drawn task.

    Attributes:
        text: the goal, as the agent reads it.
        files: the files at the beginning: path -> text.
        solution: commands that reach the goal.
        setup: a command that runs before the agent comes; ``""``: none.
        wanted: path -> text that a file must have at the end, but for white space around it;
            ``None``: nothing of that name may exist.
        probes: pairs of a command and what it must print at the end, in the agent's folder.
    """

    text: str
    files: Mapping[str, str]
    solution: Sequence[str]
    setup: str = ""
    wanted: Mapping[str, str | None] = {}
    probes: Sequence[tuple[str, str]] = ()
