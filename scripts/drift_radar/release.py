"""A release of a trainer as files: downloaded by pip, never installed; its signatures by griffe."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import griffe

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PURE = ("purelib", "platlib")
"""Folders of a wheel's ``.data`` that go where packages are installed."""


class Parameter(NamedTuple):
    """A parameter of a function, or a field of a class."""

    name: str
    kind: str
    default: str | None


class Release:
    """The modules of one release.

    Args:
        wheel: the file.
        folder: where its files are unpacked; an empty or new one.

    Attributes:
        version: as in the wheel's name.
    """

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.version = wheel.name.split("-")[1]
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)  # which keeps names inside the folder
        data = [path for name in PURE for path in folder.glob(f"*.data/{name}")]
        self.roots = [folder, *data]
        self._modules: dict[str, griffe.Module] = {}
        self._found: dict[str, griffe.Object | None] = {}
        self._set: dict[str, set[str]] = {}
        self._nodes: dict[Path, dict[tuple[str, int | None], ast.AST]] = {}

    def file_of(self, module: str) -> Path | None:
        """Return the file of a module; None where there is none."""
        for root in self.roots:
            place = root.joinpath(*module.split("."))
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    return file
        return None

    def find(self, path: str, seen: frozenset[str] = frozenset()) -> griffe.Object | None:
        """Return what a dotted path names, imports followed, methods of base classes included.

        A name that a module imports from another package is an attribute without a value. None:
        there is nothing of this name.
        """
        if path in seen:
            return None
        if path not in self._found or seen:
            self._found[path] = self._look_up(path, seen)
        return self._found[path]

    def _look_up(self, path: str, seen: frozenset[str]) -> griffe.Object | None:
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if self.file_of(module) is not None:
                return self._inside(self._module(module), parts[end:], seen | {path})
        return None

    def _module(self, name: str) -> griffe.Module:
        if name not in self._modules:
            file = self.file_of(name)
            assert file is not None
            code = file.read_text(encoding="utf-8")
            self._modules[name] = griffe.visit(name, file, code)
        return self._modules[name]

    def _inside(
        self, owner: griffe.Object, names: list[str], seen: frozenset[str]
    ) -> griffe.Object | None:
        for at, name in enumerate(names):
            member = owner.members.get(name)
            if member is None and isinstance(owner, griffe.Class):
                inherited = self._inherited(owner, name, seen)
                return inherited if at == len(names) - 1 else None
            if member is None:
                return None
            if member.is_alias:
                rest = names[at + 1 :]
                if self.file_of(member.target_path.split(".")[0]) is None:
                    return None if rest else griffe.Attribute(name, parent=owner)
                return self.find(".".join([member.target_path, *rest]), seen)
            owner = member
        return owner

    def _inherited(
        self, owner: griffe.Class, name: str, seen: frozenset[str]
    ) -> griffe.Object | None:
        if name in self._set_anywhere(owner):
            return griffe.Attribute(name, parent=owner)
        for base in self.bases(owner):
            found = self.find(f"{base.path}.{name}", seen)
            if found is not None:
                return found
        return None

    def bases(self, owner: griffe.Class) -> list[griffe.Class]:
        """Return the base classes that are in this release."""
        found = (self.find(getattr(base, "canonical_path", str(base))) for base in owner.bases)
        return [base for base in found if isinstance(base, griffe.Class)]

    def _set_anywhere(self, owner: griffe.Class) -> set[str]:
        """Return the attributes that any method of the class sets."""
        if owner.path not in self._set:
            node = self._node(owner)
            self._set[owner.path] = {
                found.attr
                for found in (ast.walk(node) if node is not None else ())
                if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Store)
                if isinstance(found.value, ast.Name) and found.value.id == "self"
            }
        return self._set[owner.path]

    def _node(self, item: griffe.Object) -> ast.AST | None:
        """Return the syntax of a class or function."""
        file = item.filepath
        if not isinstance(file, Path):
            return None
        if file not in self._nodes:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found = (n for n in ast.walk(tree) if isinstance(n, (*FUNCTIONS, ast.ClassDef)))
            self._nodes[file] = {(node.name, node.end_lineno): node for node in found}
        return self._nodes[file].get((item.name, item.endlineno))

    def parameters(self, item: griffe.Object) -> list[Parameter] | None:
        """Return what a function takes, or a class: by ``__init__``, or as its fields."""
        if isinstance(item, griffe.Function):
            return [_parameter(p) for p in item.parameters]
        if not isinstance(item, griffe.Class):
            return None
        written = self.find(f"{item.path}.__init__")
        if isinstance(written, griffe.Function):
            return [_parameter(p) for p in written.parameters][1:]
        return self.fields(item)

    def fields(self, item: griffe.Class) -> list[Parameter]:
        """Return the annotated fields of a class, those of its bases first."""
        found = {field.name: field for base in self.bases(item) for field in self.fields(base)}
        for name, member in item.members.items():
            if isinstance(member, griffe.Attribute) and member.annotation is not None:
                default = None if member.value is None else str(member.value)
                found[name] = Parameter(name, "field", default)
        return list(found.values())

    def body(self, item: griffe.Object) -> str | None:
        """Return a function's statements without comments, layout and its docstring."""
        node = self._node(item) if isinstance(item, griffe.Function) else None
        if not isinstance(node, FUNCTIONS):
            return None
        statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return "\n".join(ast.unparse(statement) for statement in statements)

    @cached_property
    def files(self) -> list[Path]:
        """The Python files of its packages, tests left out."""
        found = [file for root in self.roots for file in root.rglob("*.py")]
        return [f for f in found if not {"tests", "examples"} & set(f.parts)]

    @cached_property
    def _read(self) -> tuple[dict[str, list[tuple[str, ...] | None]], set[str]]:
        defined: dict[str, list[tuple[str, ...] | None]] = defaultdict(list)
        texts: set[str] = set()
        for file in self.files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, FUNCTIONS):
                    defined[node.name].append(tuple(a.arg for a in _all_arguments(node.args)))
                elif isinstance(node, ast.ClassDef):
                    defined[node.name].append(None)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    defined[node.attr].append(None)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    defined[node.target.id].append(None)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
        return defined, texts

    @property
    def defined(self) -> dict[str, list[tuple[str, ...] | None]]:
        """Each name that is defined -> a function's parameters, or None, once per definition."""
        return self._read[0]

    @property
    def texts(self) -> set[str]:
        """Every string of its code."""
        return self._read[1]


def _parameter(parameter: griffe.Parameter) -> Parameter:
    default = None if parameter.default is None else str(parameter.default)
    kind = "" if parameter.kind is None else parameter.kind.value
    return Parameter(parameter.name, kind, default)


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    extra = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def download(requirement: str, folder: Path, pre: bool = False) -> Path:
    """Have pip download the wheel of a requirement, without what it needs; return the file.

    No source distribution is taken, whose metadata pip would have to run code for.

    Raises:
        SystemExit: pip found no wheel; what it said is printed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary"]
    command += [":all:", "--ignore-requires-python", "--disable-pip-version-check"]
    command += ["--pre"] * pre + ["--dest", str(folder), requirement]
    outcome = subprocess.run(command, capture_output=True, text=True)
    new = set(folder.iterdir()) - before
    if outcome.returncode or len(new) != 1:
        raise SystemExit(f"pip download {requirement} gave no wheel:\n{outcome.stderr}")
    return new.pop()
