"""The files of a new package."""

from __future__ import annotations

from pathlib import Path
from string import Template

from gem_core.errors import GemError
from gem_init.names import PackageNames

_TEMPLATE = Path(__file__).with_name("template")
_TRAINER = Path(__file__).with_name("trainer")
_PLACES = {"package": "$module", "gitignore": ".gitignore"}
"""What has another name in the template, where it would be a module, or hide files from git."""


def render_package(names: PackageNames, *, trainer: bool = False) -> dict[Path, str]:
    """Return the text of every file of a package, by its path in the folder of the package.

    Args:
        names: of the package.
        trainer: whether it is the adapter of a trainer.
    """
    found = {}
    template = _TRAINER if trainer else _TEMPLATE
    for file in sorted(template.rglob("*.in")):
        parts = file.relative_to(template).with_suffix("").parts
        place = Path(*(_fill(_PLACES.get(part, part), names) for part in parts))
        found[place] = _fill(file.read_text(encoding="utf-8"), names)
    return found


def write_package(folder: Path, names: PackageNames, *, trainer: bool = False) -> list[Path]:
    """Write a package into a new folder, or an empty one; return its files.

    Args:
        folder: the new folder.
        names: of the package.
        trainer: whether it is the adapter of a trainer.

    Raises:
        GemError: the folder is not empty.
        OSError: the folder cannot be made: it is a file, or the one that it is in is missing.
    """
    texts = render_package(names, trainer=trainer)
    folder.mkdir(exist_ok=True)
    if any(folder.iterdir()):
        raise GemError(f"{folder} is not empty: name a new folder.")
    for place, text in texts.items():
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return [folder / place for place in texts]


def _fill(text: str, names: PackageNames) -> str:
    """Replace the names in a text. Raises KeyError for one that there is not."""
    return Template(text).substitute(names._asdict())
