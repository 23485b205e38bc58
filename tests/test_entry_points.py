"""Entry points of installed packages are read once, and again after something was installed."""

from __future__ import annotations

import shutil
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from gem_core.env.registration import entry_points as module
from gem_core.env.registration.entry_points import list_entry_points


def install(folder: Path, name: str) -> Path:
    """Install a package with one entry point, as an installer does: by a rename."""
    new = folder.with_name("new") / f"{name}-1.dist-info"
    new.mkdir(parents=True)
    (new / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (new / "entry_points.txt").write_text(f"[some.group]\n{name} = {name}:f\n")
    return new.rename(folder / new.name)


def names() -> list[str]:
    return sorted(point.name for point in list_entry_points("some.group"))


def test_what_is_installed_and_removed_later_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    assert names() == []
    install(folder, "a")
    assert names() == []  # the folder is not on the path
    monkeypatch.syspath_prepend(str(folder))
    assert names() == ["a"]
    b = install(folder, "b")
    assert names() == ["a", "b"]
    shutil.rmtree(b)
    assert names() == ["a"]


def test_they_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(group: str):
        calls.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(module, "entry_points", counted)
    module._read.cache_clear()
    for _ in range(3):
        assert list_entry_points("gem_core.tools") == tuple(entry_points(group="gem_core.tools"))
    assert calls == ["gem_core.tools"]
    module._read.cache_clear()
