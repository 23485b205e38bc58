"""The tests in ``packages``, ``verifiers_package`` and ``inspect_package`` need other packages.

They are collected only if their folder is named (``make test-bridges``, ``make test-verifiers``,
``make test-inspect``), and then fail where a package is missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDERS = ("packages", "verifiers_package", "inspect_package")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(argument.split("::")[0]).parts for argument in config.args]
    name = collection_path.name
    hidden = name in FOLDERS and not any(name in parts for parts in named)
    return True if hidden else None
