"""The example trainer as an installed package, with faults that a test puts into it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE = Path(__file__).resolve().parents[1] / "examples" / "trainer"


class Fault(NamedTuple):
    """A text of a file of the package, and what stands in its place."""

    file: str
    old: str
    new: str


class Conformance(NamedTuple):
    """What `gem-core conform plain` printed, its exit code, and its report, None without one."""

    code: int
    output: str
    report: dict[str, Any] | None
    folder: Path

    def outcome(self, check: str) -> tuple[str, str]:
        """Return status and reason of a check."""
        assert self.report is not None, self.output
        (row,) = [row for row in self.report["checks"] if row["name"] == check]
        return row["status"], row["reason"]


def install(folder: Path, faults: tuple[Fault, ...] = (), replay: bool = True) -> Path:
    """Install the package, with its entry points, into a folder for PYTHONPATH; return it."""
    shutil.copytree(SOURCE / "gem_plain", folder / "gem_plain")
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / "gem_plain-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gem-plain\nVersion: 0.1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
        if replay or group != "gem_parity.replays"
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    for fault in faults:
        path = folder / "gem_plain" / fault.file
        text = path.read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, f"{fault.file} has another text than {fault.old!r}"
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return folder


def conform(
    folder: Path, *arguments: str, faults: tuple[Fault, ...] = (), replay: bool = True
) -> Conformance:
    """Run `gem-core conform plain` on the package with faults, in an empty folder."""
    out = folder / "out"
    site = install(folder / "site", faults, replay)
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "gem_core.cli", "conform", "plain", "--out", str(out)]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    file = out / "conformance.json"
    report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return Conformance(done.returncode, done.stdout + done.stderr, report, out)
