"""Reads one module of an adapter: which names of the trainer it uses, and how."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

RAY_CLASS = ".__ray_metadata__.modified_class"
"""How a class is taken out of its Ray actor."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Use(NamedTuple):
    """A name that a module uses.

    Attributes:
        path: dotted, from the package on; a method's is ``module.Class.method``.
        how: ``use``, ``call``, ``patch`` (a value is put there), ``override``, ``exact`` (the
            adapter holds its parameters against a list), ``name`` (the owner is not known),
            ``data`` (a key of a dictionary) or ``setting`` (a configuration key).
        line: in the file.
        keywords: of a call.
    """

    path: str
    how: str
    line: int
    keywords: frozenset[str] = frozenset()


@dataclass
class Class:
    """A class of an adapter.

    Attributes:
        bases: dotted paths.
        methods: name -> line.
        own: names that it defines or sets.
        uses: names that are read of ``self``, ``cls`` or ``super()``.
    """

    bases: list[str] = field(default_factory=list)
    methods: dict[str, int] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    uses: list[Use] = field(default_factory=list)


class Module(ast.NodeVisitor):
    """What one module says, see the attributes.

    Args:
        name: dotted name of the module.
        tree: its syntax.
        bound: dotted function -> its parameter -> the paths that callers give it.

    Attributes:
        names: what its global names stand for.
        uses: names with a known path.
        loose: attributes of what is not known, and keys of dictionaries.
        classes: by name.
        functions: name -> parameters.
        handed: dotted function, place or name of an argument, path that is given there.
    """

    def __init__(
        self, name: str, tree: ast.Module, bound: dict[str, dict[str, set[str]]] | None = None
    ) -> None:
        self.name = name
        self.bound = bound or {}
        self.names: dict[str, set[str]] = {}
        self.uses: list[Use] = []
        self.loose: list[Use] = []
        self.classes: dict[str, Class] = {}
        self.functions: dict[str, list[str]] = {}
        self.handed: list[tuple[str, int | str, str]] = []
        self.texts: dict[str, str] = {}
        self._scopes: list[dict[str, set[str]]] = [self.names]
        self._class: Class | None = None
        for node in tree.body:
            if isinstance(node, (*Function.__args__, ast.ClassDef)):
                self.names[node.name] = {f"{name}.{node.name}"}
        self.visit(tree)

    # -- what names stand for ---------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        """Note what the names of an import stand for."""
        for item in node.names:
            bound = item.asname or item.name.split(".")[0]
            self._scopes[-1][bound] = {item.name if item.asname else bound}
            self.uses.append(Use(item.name, "use", node.lineno))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note what the names of an import stand for."""
        for item in node.names:
            path = f"{node.module}.{item.name}"
            self._scopes[-1][item.asname or item.name] = {path}
            self.uses.append(Use(path, "use", node.lineno))

    def visit_FunctionDef(self, node: Function) -> None:
        """Read a function, with what its parameters are given elsewhere."""
        arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        if self._class is None:
            self.functions[node.name] = arguments
        given = self.bound.get(f"{self.name}.{node.name}", {})
        names = [*arguments, *(a.arg for a in node.args.kwonlyargs)]
        self._scopes.append({name: given.get(name, set()) for name in names})
        self.generic_visit(node)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Read a class: bases, methods, names of its own."""
        outer, self._class = self._class, Class()
        self.classes[node.name] = self._class
        for base in node.bases:
            self._class.bases += [path.removesuffix(RAY_CLASS) for path in self._paths(base)]
        for item in node.body:
            if isinstance(item, Function):
                self._class.methods[item.name] = item.lineno
                self._class.own.add(item.name)
            elif isinstance(item, (ast.Assign, ast.AnnAssign)):
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                self._class.own |= {t.id for t in targets if isinstance(t, ast.Name)}
        self.generic_visit(node)
        self._class = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        """Give a name what is assigned to it."""
        self.generic_visit(node)
        paths = self._paths(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._scopes[-1][target.id] = paths
                text = self._text(node.value)
                if text is not None:
                    self.texts[target.id] = text

    # -- what is used -----------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note a use, or a value that is put there."""
        stored = not isinstance(node.ctx, ast.Load)
        paths = self._paths(node)
        for path in paths:
            self.uses.append(Use(path, "patch" if stored else "use", node.lineno))
        if not paths:
            self._note_attribute(node, stored)
            self.visit(node.value)

    def _note_attribute(self, node: ast.Attribute, stored: bool) -> None:
        if self._class is not None and _is_self(node.value):
            if stored and not isinstance(node.value, ast.Call):
                self._class.own.add(node.attr)
            how = "patch" if stored else "use"
            self._class.uses.append(Use(node.attr, how, node.lineno))
        else:
            self.loose.append(Use(node.attr, "name", node.lineno))

    def visit_Call(self, node: ast.Call) -> None:
        """Note a call, its keywords and the paths that it is given."""
        keywords = frozenset(k.arg for k in node.keywords if k.arg)
        for path in self._paths(node.func):
            self.uses.append(Use(path, "call", node.lineno, keywords))
            given: list[tuple[int | str, ast.expr]] = list(enumerate(node.args))
            given += [(k.arg, k.value) for k in node.keywords if k.arg]
            self.handed += [(path, at, p) for at, value in given for p in self._paths(value)]
        owned = isinstance(node.func, ast.Attribute) and _is_self(node.func.value)
        if self._class is not None and owned:
            self._class.uses.append(Use(node.func.attr, "call", node.lineno, keywords))
        patched = isinstance(node.func, ast.Attribute) and node.func.attr == "object"
        self._note_pairs(node.args, patched or self._paths(node.func) == {"setattr"})
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        """Note an owner with a name behind it."""
        self._note_pairs(node.elts, True)
        self.generic_visit(node)

    def _note_pairs(self, values: Iterable[ast.expr], patched: bool) -> None:
        """Note an owner with a name behind it, as in ``patch.object(module, "name", ...)``."""
        for owner, name in pairwise(values):
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                for path in self._paths(owner) if name.value.isidentifier() else ():
                    how = "patch" if patched else "use"
                    self.uses.append(Use(f"{path}.{name.value}", how, name.lineno))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note a key of a dictionary."""
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self.loose.append(Use(key.value, "data", node.lineno))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Note a text that is a path."""
        if isinstance(node.value, str):
            self._note_text(node.value, node.lineno, "use")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Note a text that is a path, put together of constants."""
        self._note_text(self._text(node) or "", node.lineno, "use")

    def visit_Dict(self, node: ast.Dict) -> None:
        """Note a table of paths and parameters."""
        for key, value in zip(node.keys, node.values, strict=True):
            path = None if key is None else self._text(key)
            if path and ":" in path and self._text(value) is not None:
                self._note_text(path, key.lineno, "exact")
        self.generic_visit(node)

    def _note_text(self, text: str, line: int, how: str) -> None:
        dotted = text.replace(":", ".", 1)
        if "." in dotted and all(part.isidentifier() for part in dotted.split(".")):
            self.uses.append(Use(dotted, how, line))

    def _text(self, node: ast.expr) -> str | None:
        """Return a string, with the module's own constants put in."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        if isinstance(node, ast.FormattedValue):
            return self._text(node.value)
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(value) for value in node.values]
            return None if None in parts else "".join(part or "" for part in parts)
        return None

    def _paths(self, node: ast.expr) -> set[str]:
        """Return what an expression of names and dots stands for."""
        if isinstance(node, ast.Attribute):
            return {f"{path}.{node.attr}" for path in self._paths(node.value)}
        if isinstance(node, ast.Name):
            for scope in reversed(self._scopes):
                if node.id in scope:
                    return scope[node.id]
        return set()


def _is_self(node: ast.expr) -> bool:
    """Whether this is ``self``, ``cls`` or ``super()``."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
