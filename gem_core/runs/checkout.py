"""Whether gem-core runs from a checkout or was installed, and how a trainer is then installed."""

from __future__ import annotations

from pathlib import Path


def checkout() -> Path | None:
    """Return the directory of the checkout that gem-core runs from; ``None``: it is installed."""
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "Makefile").is_file() and (folder / "scripts").is_dir() else None


def cpu_line(trainer: str, otherwise: str) -> str:
    """Return the line that makes an environment in which a trainer trains on a CPU.

    ``otherwise`` is the line for a trainer of another package.
    """
    from gem_core.runs.install import stacks

    if trainer not in stacks():
        return otherwise
    if checkout() is not None:
        return f"make env-{trainer}"
    return f"pip install 'gem-core[{trainer}]'"
