"""How each trainer is installed for GPUs, and what must then be there: ``install.toml``.

The pages, the adapters' declarations and ``gem-core doctor`` read the same file, so that the line
that a user is told is the line that is checked.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gem_core.errors import unknown

FILE = Path(__file__).with_name("install.toml")
DRIVERS = {"12": "525", "13": "580"}
"""Oldest driver by major version of CUDA, from NVIDIA's table of minor version compatibility."""
_COMMAND = "pip install "
PUBLISHED = False
"""Whether the package index has gem-core; `scripts/install_lines.py` then writes every page anew.

Until then a line for a new environment installs the checkout that it is run in: by name, pip would
take what somebody else may have published. In an environment that has gem-core,
``pip install 'gem-core[extra]'`` adds what is missing to the one that is there, on both sides of
this switch: pip keeps an installed distribution that fits, and does not ask the index for it.
"""


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one trainer needs on a machine with GPUs; the fields are explained in the file."""

    python: str
    lines: tuple[str, ...]
    cuda: str
    engine: str
    holds: dict[str, tuple[str, ...]]
    watched: tuple[str, ...]
    flash_attn: bool
    imports: tuple[str, ...]
    cpu: tuple[str, ...]
    ray: bool
    nvcc: bool
    shm_gb: float
    notes: tuple[str, ...] = ()
    below: str | None = None
    shm_taken_gb: float = 0
    engines: dict[str, str] = {}
    attention: str = ""

    @property
    def driver(self) -> str:
        """The oldest NVIDIA driver for its CUDA: https://docs.nvidia.com/deploy/cuda-compatibility."""
        return DRIVERS[self.cuda.partition(".")[0]]

    @property
    def command(self) -> str:
        """All lines as one that a shell takes."""
        return " && ".join(self.lines)

    def line_for(self, distribution: str) -> str:
        """Return the first line that names ``distribution``; all lines if none does."""
        wanted = normal(distribution)
        for line in self.lines:
            if wanted in {normal(name) for name in _names(line)}:
                return line
        return self.command

    def requirements(self) -> list[str]:
        """Return what the lines install, without gem-core itself: ``["torch==2.13.0", ...]``."""
        words = [word for line in self.lines for word in _words(line)]
        return [word for word in words if not word.startswith(("gem-core", "."))]


def requirement(extra: str) -> str:
    """Return how gem-core with an extra is written in a line for a new environment.

    >>> requirement("trl")
    '.[trl]'
    """
    return f"gem-core[{extra}]" if PUBLISHED else f".[{extra}]"


@cache
def stacks() -> dict[str, Stack]:
    """Return the stack of every trainer in the file, by the trainer's name."""
    data: dict[str, Any] = msgspec.toml.decode(FILE.read_bytes())
    for name, table in data.items():
        by_name, wanted = f"gem-core[{name}]", requirement(name)
        table["lines"] = [line.replace(by_name, wanted) for line in table["lines"]]
    return msgspec.convert(data, dict[str, Stack])


def stack(name: str) -> Stack:
    """Return the stack of the trainer called ``name``.

    Raises:
        UnknownNameError: the file has no such trainer.
    """
    if name not in stacks():
        raise unknown("trainer", name, stacks(), f"{FILE.name} has: {sorted(stacks())}.")
    return stacks()[name]


def install_line(name: str) -> str:
    """Return the lines of a trainer as one, for `gem_core.runs.trainers.Trainer.install`."""
    return stack(name).command


def shell_block(name: str) -> str:
    """Return the lines that a user types, from the environment on, one below another."""
    chosen = stack(name)
    first = f"python{chosen.python} -m venv {name}-env && . {name}-env/bin/activate"
    return "\n".join([first, *chosen.lines])


def normal(distribution: str) -> str:
    """Return a distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _words(line: str) -> list[str]:
    """Return the requirements in a line of pip, without its options."""
    if not line.startswith(_COMMAND):
        return []
    words = line.removeprefix(_COMMAND).replace('"', "").split()
    return [word for word in words if not word.startswith("-")]


def _names(line: str) -> list[str]:
    return [re.split(r"[\[<>=!~; ]", word, maxsplit=1)[0] for word in _words(line)]
