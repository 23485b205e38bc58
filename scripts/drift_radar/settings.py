"""The configuration keys of a release, with their defaults as text."""

from __future__ import annotations

import ast
from typing import Any

import griffe
import yaml

from drift_radar.by_hand import ARGUMENTS, FIELDS, HYDRA
from drift_radar.release import Release


def settings(trainer: str, release: Release) -> dict[str, str | None]:
    """Return dotted key -> default; empty where what declares them has moved."""
    if trainer in FIELDS:
        owner = release.find(FIELDS[trainer])
        if not isinstance(owner, griffe.Class):
            return {}
        return {field.name: field.default for field in release.fields(owner)}
    if trainer in ARGUMENTS:
        return _arguments(ARGUMENTS[trainer], release)
    return _hydra(HYDRA[trainer], release)


def _arguments(module: str, release: Release) -> dict[str, str | None]:
    file = release.file_of(module)
    found: dict[str, str | None] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file else ():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            options = {word.arg: ast.unparse(word.value) for word in node.keywords}
            for name in node.args:
                if isinstance(name, ast.Constant) and str(name.value).startswith("--"):
                    found[str(name.value)[2:]] = options.get("default")
    return found


def _hydra(name: str, release: Release) -> dict[str, str | None]:
    files = [root / name for root in release.roots if (root / name).is_file()]
    if not files:
        return {}
    return dict(_flat("", yaml.safe_load(files[0].read_text(encoding="utf-8"))))


def _flat(prefix: str, table: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return every key, those of tables too: a table may be set as a whole."""
    rows: list[tuple[str, str | None]] = []
    for key, value in table.items():
        inner = isinstance(value, dict)
        rows.append((f"{prefix}{key}", None if inner else str(value)))
        rows += _flat(f"{prefix}{key}.", value) if inner else []
    return rows
