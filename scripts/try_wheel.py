#!/usr/bin/env python3
"""Install the wheel in a new environment away from the checkout and use it: ``make test-wheel``.

    python scripts/try_wheel.py [--python PYTHON] [--conformance] [FILE]

Without a file the wheel is built from the sdist, as a release builds it. The environment and the
working directory are in a temporary folder, so that nothing is found in the checkout by chance.
pip takes gem-core's dependencies from the package index.

With ``--conformance`` the extra of that name is installed afterwards, with nothing else, and the
trainer that ``gem-core init`` wrote goes through all checks of ``gem-core conform``: what the extra
lacks, no environment of the tests would show, as a trainer has brought it there. Five minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "guess-the-number-easy"
PROGRAM = """
import sys
from pathlib import Path
import gem_core
assert Path(gem_core.__file__).is_relative_to(sys.prefix), gem_core.__file__
env = gem_core.make("game:GuessTheNumber-v0-easy")
env.reset(seed=7)
env.step("\\\\boxed{5}")
print(gem_core.load_recipe("guess-the-number-easy", "tiny").env)
"""
COMMANDS: tuple[tuple[Sequence[str], int], ...] = (
    (("gem-core", "--version"), 0),
    (("gem-core", "list"), 0),
    (("gem-core", "list", "--kind", "baselines"), 0),
    (("gem-core", "show", BASELINE), 0),
    (("gem-core", "check", "game:GuessTheNumber-v0-easy"), 0),
    (("gem-core", "init", "my-envs"), 0),
    (("pip", "install", "--quiet", "--disable-pip-version-check", "-e", "my-envs"), 0),
    (("gem-core", "check", "my:Change-v0"), 0),
    (("gem-core", "show", "my-envs/recipe.toml", "--profile", "tiny"), 0),
    (
        ("gem-core", "eval", "game:*-easy", "--player", "expert", "--tasks", "2", "--out", "evals"),
        0,
    ),
    (("gem-core", "view", "evals", "--export", "report.html"), 0),
    (("gem-core", "init", "my-trainer", "--trainer"), 0),
    (("pip", "install", "--quiet", "--no-deps", "-e", "my-trainer"), 0),  # without torch
    (("gem-core", "conform", "my", "--only", "keys", "values", "unknown-keys"), 0),
    (("gem-core", "doctor"), 1),  # no trainer is installed
    (("gem-core", "train", BASELINE, "--trainer", "trl", "--run", "run"), 2),  # and this says so
    (("python", "-c", PROGRAM), 0),
)
"""Commands in the new environment and the exit code that each must have."""
TORCH = "torch==2.13.0"
"""Exactly this one is a small build for CPUs on every index that has one."""
CONFORM = ("gem-core", "conform", "my")


def main() -> int:
    """Build, install and use the wheel; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", nargs="?", type=Path, metavar="FILE", help="a wheel that exists")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install it in")
    parser.add_argument("--conformance", action="store_true", help="try that extra, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = options.wheel.resolve() if options.wheel else build(folder)
        scripts = install(options.python, wheel, folder)
        wrong = [failure for command in COMMANDS for failure in use(scripts, folder, *command)]
        if options.conformance:
            extra = f"{wheel}[conformance]"
            for line in (
                ("pip", "install", "--quiet", TORCH),
                ("pip", "install", "--quiet", extra),
            ):
                wrong += use(scripts, folder, line, 0)
            wrong += use(scripts, folder, CONFORM, 0)
    print("\n".join(wrong) or f"{wheel.name} works in a new environment")
    return int(bool(wrong))


def build(folder: Path) -> Path:
    """Build the sdist of the checkout and the wheel of that sdist; return the wheel."""
    hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist"), "-t"]
    subprocess.run([*hatch, "sdist"], cwd=ROOT, check=True)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source")
    (source,) = (folder / "source").iterdir()
    subprocess.run([*hatch, "wheel"], cwd=source, check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def install(python: str, wheel: Path, folder: Path) -> Path:
    """Install the wheel in a new virtual environment; return the folder of its commands."""
    scripts = folder / "venv" / "bin"
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], cwd=folder, check=True)
    return scripts


def use(scripts: Path, folder: Path, command: Sequence[str], expected: int) -> list[str]:
    """Run a command; return what was wrong: another exit code than ``expected``, or a defect."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    program, *rest = command
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GEM_CORE"))}
    done = subprocess.run(
        [str(scripts / program), *rest], cwd=work, env=variables, capture_output=True, text=True
    )
    said = (done.stdout + done.stderr).strip()
    shown = " ".join(word for word in command if "\n" not in word)
    print(f"{shown}: exit {done.returncode}", flush=True)
    if command == CONFORM:
        print(said.rpartition("\n")[2], flush=True)
    if done.returncode == expected and "Traceback" not in said:
        return []
    return [f"{command} ended with {done.returncode}, not {expected}: {said[-2000:]}"]


if __name__ == "__main__":
    sys.exit(main())
