"""Installs a package for the processes of a test, without pip and without the network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def install_plugin(source: Path, folder: Path) -> str:
    """Install the package in ``source`` as `pip install -e` does; return the new PYTHONPATH.

    What pip would write beside the modules of an environment, the metadata with the entry points,
    is written into ``folder``, which then stands in front of the path with the package's modules.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    modules = source / "src" if (source / "src").is_dir() else source
    paths = [str(modules), str(folder), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, paths))
