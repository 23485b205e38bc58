#!/usr/bin/env python3
"""Ask a resolver whether each extra can be installed: ``python scripts/resolve_extras.py``.

Every extra alone, those of the environments together, and the pairs of `PAIRS`, each for the
lowest and the highest Python that it is for. ``verifiers,mcp`` as an argument asks for that set
alone. It needs uv (``pip install uv``) and the package
index, and downloads metadata only. An extra that would install nothing for a Python is left out
there: `gem_core.errors.python_needed` says so to the user.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import tomllib

from gem_core.errors import python_needed

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13))
TRAINERS = ("verl", "openrlhf", "trl", "oat", "rl2")
ENVIRONMENTS = ("envs", "server", "plot")
"""Extras that are meant to be installed together."""
PAIRS = (
    ("eval", "envs", "tracking"),
    ("verifiers", "envs"),
    ("verifiers", "mcp"),
    ("verifiers", "server"),
    ("inspect", "envs"),
    ("inspect", "server"),
    ("textarena", "server"),
    ("trl", "mcp"),
)


def main() -> int:
    """Resolve everything; print a line for each, return the exit status."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [(name,) for name in extras["optional-dependencies"]]
    wanted += [ENVIRONMENTS, *PAIRS]
    wanted += [(name, "server", "endpoint", "math", "rg") for name in TRAINERS]
    wanted = [tuple(names.split(",")) for names in sys.argv[1:]] or wanted
    return max([resolve(names, declared(extras)) for names in wanted])


def declared(project: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return the requirements of all extras as the installed metadata has them."""
    return [
        f"{line} and extra == '{name}'" if ";" in line else f"{line}; extra == '{name}'"
        for name, lines in project["optional-dependencies"].items()
        for line in lines
    ]


def resolve(names: tuple[str, ...], requirements: list[str]) -> int:
    """Resolve extras together for the first and last Python that all of them are for."""
    fit = [v for v in PYTHONS if not any(python_needed(n, v, requirements) for n in names)]
    label = f"[{','.join(names)}]"
    if not fit:
        print(f"{label}: no Python is for all of them")
        return 1
    return max(resolve_for(label, python) for python in dict.fromkeys((fit[0], fit[-1])))


def resolve_for(label: str, python: tuple[int, int]) -> int:
    """Resolve extras for one Python; print whether they can be installed."""
    version = f"{python[0]}.{python[1]}"
    command = ["uv", "pip", "compile", "-", "--quiet", f"--python-version={version}"]
    command += ["--python-platform=x86_64-manylinux_2_28", "--no-header", "--no-annotate"]
    done = subprocess.run(
        command, input=f"gem-core{label} @ file://{ROOT}\n", capture_output=True, text=True
    )
    said = re.sub(r"\s+", " ", done.stderr)[:600]
    print(f"{label} on {version}: " + (said if done.returncode else "resolves"), flush=True)
    return int(bool(done.returncode))


if __name__ == "__main__":
    sys.exit(main())
