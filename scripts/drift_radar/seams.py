"""What an adapter uses of its trainer, from the adapter's own source."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from drift_radar.by_hand import ABSENT, BY_HAND, OTHER_SOURCE
from drift_radar.scan import Class, Module, Use
from gem_adapters.native_keys import bare

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [*(ROOT / "gem_core").rglob("*.py"), *(ROOT / "integrations").rglob("*.py")]
_DEFINED = re.compile(r"(?:\bdef |\bclass |^    )(\w+)(?=\(|:)", re.MULTILINE)
"""The names of functions, classes and fields in a file."""
_OF_PYTHON = re.compile(r"\.__(?:path|file|version|wrapped|ray_metadata)__")
_BUILTIN = {
    name for kind in vars(builtins).values() if isinstance(kind, type) for name in dir(kind)
}
"""Attributes of Python's own types."""
BARE = ("name", "data", "setting", "own setting")
"""Uses without a path."""


class Seam(NamedTuple):
    """Something of a trainer that its adapter relies on.

    Attributes:
        path: dotted; a bare name where ``how`` is ``name``, ``data`` or ``setting``.
        how: see `drift_radar.scan.Use`.
        places: ``file:line``, from the checkout on.
        keywords: of the calls.
    """

    path: str
    how: str
    places: tuple[str, ...]
    keywords: frozenset[str] = frozenset()


class Adapter:
    """The modules of one adapter.

    Args:
        trainer: its name in gem-core.
        folder: ``integrations/gem_<trainer>``, or a copy.
    """

    def __init__(self, trainer: str, folder: Path | None = None) -> None:
        self.trainer = trainer
        self.folder = folder or ROOT / "integrations" / f"gem_{trainer}"
        self.package = f"gem_{trainer}"
        left_out = {"stand_ins", *OTHER_SOURCE.get(trainer, ())}
        self.files: dict[str, Path] = {}
        for file in sorted(self.folder.rglob("*.py")):
            inner = file.relative_to(self.folder)
            if not left_out & set(inner.parts):
                parts = [part for part in inner.with_suffix("").parts if part != "__init__"]
                self.files[".".join([self.package, *parts])] = file
        self.modules = self._read({})
        for _ in range(2):  # a function may hand on what it is given
            self.modules = self._read(self._bound())

    def _read(self, bound: dict[str, dict[str, set[str]]]) -> dict[str, Module]:
        return {
            name: Module(name, ast.parse(file.read_text(encoding="utf-8")), bound)
            for name, file in self.files.items()
        }

    def _bound(self) -> dict[str, dict[str, set[str]]]:
        """Return which of the adapter's functions gets which paths, by parameter."""
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for module in self.modules.values():
            for function, at, path in module.handed:
                home, _, name = self.resolve(function).rpartition(".")
                parameters = self.modules[home].functions.get(name) if home in self.modules else ()
                if isinstance(at, int) and parameters and at < len(parameters):
                    at = parameters[at]
                if isinstance(at, str) and parameters and at in parameters:
                    found[f"{home}.{name}"][at].add(self.resolve(path))
        return found

    def resolve(self, path: str) -> str:
        """Return where a name of the adapter comes from, if it only hands it on."""
        for end in range(path.count("."), 0, -1):
            head, rest = path.split(".")[:end], path.split(".")[end:]
            module = self.modules.get(".".join(head))
            if module is not None:
                origins = module.names.get(rest[0], set())
                own = f"{module.name}.{rest[0]}"
                if len(origins) == 1 and own not in origins:
                    return self.resolve(".".join([*origins, *rest[1:]]))
                return path
        return path

    def _classes(self) -> dict[str, Class]:
        return {
            f"{module.name}.{name}": found
            for module in self.modules.values()
            for name, found in module.classes.items()
        }

    def _uses(self, packages: Collection[str]) -> Iterable[tuple[Path, Use]]:
        """Yield each use with a path in the trainer's packages."""
        classes = self._classes()
        for module in self.modules.values():
            for use in module.uses:
                yield self.files[module.name], use._replace(path=self.resolve(use.path))
            for name in module.classes:
                path = f"{module.name}.{name}"
                for base in self._trainers_bases(path, classes, packages):
                    for use in _of_class(classes[path], base):
                        yield self.files[module.name], use
        for file, use in BY_HAND.get(self.trainer, ()):
            yield self.folder / file, use

    def _trainers_bases(
        self, path: str, classes: dict[str, Class], packages: Collection[str]
    ) -> set[str]:
        """Return the trainer's classes that a class extends, a mixin's through its users."""
        found = self._bases_above(path, classes, packages)
        if not found:
            users = [name for name in classes if path in self._ancestors(name, classes)]
            found = {b for user in users for b in self._bases_above(user, classes, packages)}
        return found

    def _ancestors(self, path: str, classes: dict[str, Class]) -> set[str]:
        if path not in classes:
            return set()
        bases = {self.resolve(base) for base in classes[path].bases}
        return bases | {above for base in bases for above in self._ancestors(base, classes)}

    def _bases_above(
        self, path: str, classes: dict[str, Class], packages: Collection[str]
    ) -> set[str]:
        return {b for b in self._ancestors(path, classes) if b.split(".")[0] in packages}

    def seams(self, packages: Collection[str]) -> list[Seam]:
        """Return all seams, those with a path first.

        Args:
            packages: what the trainer's release has at its top, such as ``{"trl"}``.
        """
        places: dict[tuple[str, str], list[str]] = defaultdict(list)
        keywords: dict[tuple[str, str], set[str]] = defaultdict(set)
        for file, use in self._uses(packages):
            path = _OF_PYTHON.split(use.path)[0]
            if path.split(".")[0] in packages and path not in ABSENT:
                places[path, use.how].append(_place(file, use.line))
                keywords[path, use.how] |= use.keywords
        for name, module in self.modules.items():
            for use in module.loose:
                if use.how == "data" or use.path not in _own_names():
                    places[use.path, use.how].append(_place(self.files[name], use.line))
        table = self.folder / "key_table.py"
        for row in import_module(f"{self.package}.key_table").TABLE.rows:
            for name in row.native:
                how = "own setting" if row.kind == "unset" else "setting"
                places[bare(name), how].append(_place(table, 0))
        return [
            Seam(path, how, tuple(sorted(set(at))), frozenset(keywords[path, how]))
            for (path, how), at in places.items()
        ]


@cache
def _own_names() -> frozenset[str]:
    """Return the attributes that gem-core's code and Python's types have: they say nothing."""
    texts = (file.read_text(encoding="utf-8") for file in SOURCES)
    return frozenset({name for text in texts for name in _DEFINED.findall(text)} | _BUILTIN)


def _of_class(found: Class, base: str) -> Iterable[Use]:
    for name, line in found.methods.items():
        yield Use(f"{base}.{name}", "override", line)
    for use in found.uses:
        yield use._replace(path=f"{base}.{use.path}")


def _place(file: Path, line: int) -> str:
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else Path(file.name)
    return f"{name}:{line}" if line else str(name)
