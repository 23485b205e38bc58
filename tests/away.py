"""The wheel of this checkout, installed away from it, where lines of the pages are run.

The packages of other people are those of the environment that runs the tests, so that nothing is
downloaded; gem-core is that of the wheel. ``make test-wheel`` takes the others from the index, too.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OWN = ("PYTHON", "GEM_")
"""Beginnings of variables that a reader does not have."""


class Away(NamedTuple):
    """An environment with the wheel.

    Attributes:
        scripts: the folder of its commands.
        work: the folder in which they are run.
    """

    scripts: Path
    work: Path

    def run(self, page: str, line: str, *more: str) -> str:
        """Run a line of a page with more arguments; return its output.

        ``pip install -e FOLDER`` is run as ``pip install ./FOLDER``: the other needs a package that
        the environments of the tests lack.
        """
        text = (ROOT / page).read_text(encoding="utf-8")
        assert line in text, f"{page} has no line {line!r}"
        program, *rest = shlex.split(line.replace("install -e ", "install ./"))
        return self.command(program, *rest, *more)

    def command(self, program: str, *arguments: str) -> str:
        """Run a command, which must succeed; return its output."""
        command = [str(self.scripts / program), *arguments]
        if program == "pip":
            command = [str(self.scripts / "python"), "-m", *(program, *arguments)]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
        own = {
            "GEM_CORE_CACHE": str(self.work / "cache"),
            "PATH": f"{self.scripts}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for: take hatchling from here
            "PIP_NO_INDEX": "1",
        }
        done = subprocess.run(
            command, cwd=self.work, env=kept | own, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "Traceback" not in said, f"{command}: {said[-3000:]}"
        return done.stdout


def install_away(folder: Path) -> Away:
    """Build the wheel and install it in a new environment below a folder."""
    build = ["hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run([sys.executable, "-m", *build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (modules,) = (folder / "venv" / "lib").glob("python*/site-packages")
    others = Path(str(distribution("msgspec").locate_file(""))).resolve()
    (modules / "others.pth").write_text(f"import site; site.addsitedir({str(others)!r})\n")
    work = folder / "work"
    work.mkdir()
    away = Away(folder / "venv" / "bin", work)
    away.command("pip", "install", "--quiet", str(wheel))
    return away
