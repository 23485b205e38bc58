"""Which extras of gem-core are installed here: what the doctor says of each of them.

pip installs nothing, without a word, where the markers of an extra exclude the Python. The doctor
tells that apart from packages that are missing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import metadata, requires
from typing import NamedTuple

from gem_core.errors import how_to_install, python_needed
from gem_core.runs.trainers import installed_version

_EXTRA = re.compile(r"extra == [\"']([\w-]+)[\"']")
_NAME = re.compile(r"[\w.-]+")


class Extra(NamedTuple):
    """One extra, as it is in this environment.

    Attributes:
        name: what is written in the brackets.
        missing: distributions of it that are not installed; their versions are not compared.
        needs: the Python that it needs, ``None`` where it is for this one.
    """

    name: str
    missing: tuple[str, ...]
    needs: str | None

    @property
    def state(self) -> str:
        """One line on it, without the line that installs it."""
        if self.needs is not None:
            return f"installs nothing on this Python: needs {self.needs}"
        return f"missing: {', '.join(self.missing)}" if self.missing else "installed"

    def data(self) -> dict[str, object]:
        """What ``--json`` prints of it."""
        ready = not self.missing and self.needs is None
        fix = None if ready else how_to_install(self.name)
        return {"name": self.name, "installed": ready, "state": self.state, "fix": fix}


def find_extras(
    declared: Sequence[str] | None = None,
    python: tuple[int, int] | None = None,
    version_of: Callable[[str], str | None] = installed_version,
) -> list[Extra]:
    """Return every extra in the order of its name.

    Args:
        declared: requirements with their markers; ``None`` = those of the installed gem-core.
        python: version of the interpreter; ``None`` = this one's.
        version_of: gives the version of a distribution, ``None`` where it is not installed.

    >>> lines = ["a>=1; extra == 'one'", "b; (python_version < '3.11') and extra == 'two'"]
    >>> for extra in find_extras(lines, (3, 12), {"a": "1"}.get):
    ...     print(extra.name, "-", extra.state)
    one - installed
    two - installs nothing on this Python: needs <3.11
    """
    lines = (requires("gem-core") or []) if declared is None else declared
    here = python or sys.version_info[:2]
    members: dict[str, list[str]] = {}
    if declared is None:  # an extra may need nothing more, and no requirement names it then
        members = {name: [] for name in metadata("gem-core").get_all("Provides-Extra") or ()}
    for line in lines:
        for name in _EXTRA.findall(line):
            members.setdefault(name, []).append(line)
    return [_examine(name, members[name], here, version_of) for name in sorted(members)]


def _examine(
    name: str, lines: list[str], python: tuple[int, int], version_of: Callable[[str], str | None]
) -> Extra:
    needs = python_needed(name, python, lines)
    for_here = [line for line in lines if python_needed(name, python, [line]) is None]
    found = [_NAME.match(line) for line in for_here]
    wanted = [match[0] for match in found if match is not None]
    missing = tuple(distribution for distribution in wanted if version_of(distribution) is None)
    return Extra(name, missing, needs)
