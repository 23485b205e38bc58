#!/usr/bin/env python3
"""Build one development environment: ``python scripts/make_env.py NAME``.

The five trainers pin conflicting packages, so each has its own environment, and ``core`` has none
of them. An environment consists of two virtual environments:

* The *base* holds the third-party packages. It is outside the checkout, in
  ``$GEM_CORE_ENV_CACHE`` (default ``~/.cache/gem-core/envs``), and named by a hash of everything
  that determines its content, so that all checkouts share it and a change of the pins makes a new
  one.
* The *thin* one is ``.venvs/NAME`` in this checkout (``$GEM_CORE_ENVS/NAME`` if that is set). It
  includes the base through a ``.pth`` file and holds the editable install of this checkout.

``constraints/environments.toml`` has the packages and the steps of their installation,
``constraints/NAME.txt`` the exact versions. ``--lock`` installs without that file and writes it
from the result.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints"
ENVIRONMENTS = CONSTRAINTS / "environments.toml"
LAYOUT = 1  # increase it when this file builds something different from the same data
STAMP = ".gem-core-complete"
SHOWN_LINES = 40


class BuildError(Exception):
    """A build cannot continue; the message is for the user."""


class Interpreter(NamedTuple):
    """A Python interpreter that works."""

    path: str
    version: str


Table = dict[str, Any]  # a table of the TOML file


class Plan(NamedTuple):
    """The description of one environment."""

    name: str
    python: str
    summary: str
    steps: tuple[Table, ...]


# --- data ------------------------------------------------------------------------------------


def load_plan(name: str, file: Path = ENVIRONMENTS) -> Plan:
    """Read the description of an environment; the common packages are its last step."""
    import tomllib

    data = tomllib.loads(file.read_text(encoding="utf-8"))
    known = environment_names(data)
    if name not in known:
        raise BuildError(f"there is no environment {name!r}; there are: {', '.join(known)}")
    steps = (*data[name]["steps"], {"install": data[name].get("common", data["common"])})
    for step in steps:
        unknown = set(step) - {"install", "options", "environ"}
        if unknown:
            raise BuildError(f"{file}: unknown key in a step of {name}: {', '.join(unknown)}")
    python = data[name].get("python", data["python"])
    return Plan(name, python, data[name]["summary"], steps)


def environment_names(data: Table) -> list[str]:
    """Return the names of the environments in the parsed data file, in its order."""
    return [key for key, value in data.items() if isinstance(value, dict)]


def pins(name: str, folder: Path = CONSTRAINTS) -> list[str]:
    """Return the lines of a constraints file without comments and empty lines."""
    file = folder / f"{name}.txt"
    if not file.exists():
        raise BuildError(f"{file} is missing; write it with: scripts/make_env.py {name} --lock")
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def base_key(plan: Plan, pinned: Sequence[str], python: str) -> str:
    """Return a short hash of everything that determines the content of a base."""
    content = json.dumps([LAYOUT, plan.steps, list(pinned), python], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


# --- interpreter -----------------------------------------------------------------------------


def find_python(release: str) -> Interpreter:
    """Return the first Python of a release ("3.11") that can make virtual environments.

    Every candidate is run, because the shim of a version manager is on PATH even if its version is
    not installed. ``GEM_CORE_PYTHON`` selects an interpreter explicitly.
    """
    chosen = os.environ.get("GEM_CORE_PYTHON")
    candidates = [chosen] if chosen else [sys.executable, *_on_path(f"python{release}", "python3")]
    tried = []
    for path in candidates:
        interpreter, reason = _try_python(path, release)
        if interpreter:
            return interpreter
        tried.append(f"  {path}: {reason}")
    raise BuildError(
        f"no usable Python {release} was found. Tried:\n"
        + "\n".join(tried)
        + f"\nInstall Python {release} with its venv module (Debian, Ubuntu: "
        f"`apt install python{release} python{release}-venv`), or set GEM_CORE_PYTHON to one."
    )


def _on_path(*commands: str) -> list[str]:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    paths = (os.path.join(folder, command) for command in commands for folder in folders if folder)
    return [path for path in dict.fromkeys(paths) if os.access(path, os.X_OK)]


def _try_python(path: str, release: str) -> tuple[Interpreter | None, str]:
    code = (
        "import sys, os, venv, ensurepip\n"
        "print(os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable))\n"
        "print('.'.join(map(str, sys.version_info[:3])))"
    )
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["it failed"])[-1]
    executable, version = done.stdout.split()
    if version.split(".")[:2] != release.split("."):
        return None, f"is Python {version}"
    return Interpreter(executable, version), ""


# --- building --------------------------------------------------------------------------------


def log(message: str) -> None:
    """Print a line of progress."""
    print(f"make_env: {message}", flush=True)


def run(command: Sequence[str], log_file: Path, environ: dict[str, str] | None = None) -> None:
    """Run a command with its output in ``log_file``; an error has the end of it."""
    shown = " ".join([*(f"{k}={v}" for k, v in (environ or {}).items()), *command])
    with log_file.open("a", encoding="utf-8") as out:
        out.write(f"$ {shown}\n")
        out.flush()
        code = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**_clean_environ(), **(environ or {})},
        ).returncode
    if code:
        tail = log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:]
        raise BuildError(
            "\n".join([*tail, f"exit code {code} from: {shown}", f"full log: {log_file}"])
        )


def _clean_environ() -> dict[str, str]:
    """Return the environment variables without those of another Python installation."""
    unwanted = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV", "PIP_TARGET"}
    return {key: value for key, value in os.environ.items() if key not in unwanted}


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of an environment, so that only one process builds it at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(target.name + ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"another process is building {target}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_complete(venv: Path, content: str, part: int | None = None) -> bool:
    """Return whether ``venv`` was built completely from ``content`` and its interpreter exists.

    With ``part``, only that line of the stamp is compared.
    """
    stamp = venv / STAMP
    if not (stamp.exists() and (venv / "bin" / "python").exists()):
        return False
    built = stamp.read_text(encoding="utf-8")
    return content == (built if part is None else built.splitlines()[part])


def build_base(plan: Plan, pinned: Sequence[str] | None, python: Interpreter, target: Path) -> None:
    """Install the third-party packages in ``target``, which is rebuilt if it is not complete.

    A virtual environment cannot be moved, so it is built in place; the stamp, which is written
    last, distinguishes a finished one from an interrupted one. If ``pinned`` is ``None``, pip
    chooses the versions.
    """
    key = base_key(plan, pinned or [], python.version)
    with locked(target):
        if pinned is not None and is_complete(target, key):
            return
        if target.exists():
            log(f"{target} is not complete; building it again")
            shutil.rmtree(target)
        begun = time.monotonic()
        log(f"{plan.name} ({plan.summary}), Python {python.version} -> {target}")
        target.mkdir()
        log_file = target / "build.log"
        run([python.path, "-m", "venv", str(target)], log_file)
        for number, step in enumerate(plan.steps, 1):
            log(f"step {number} of {len(plan.steps)}: {_describe(step)}")
            _install(target, step, pinned, log_file)
        (target / STAMP).write_text(key, encoding="utf-8")
        log(f"{plan.name}: third-party packages ready in {time.monotonic() - begun:.0f} s")


def _describe(step: Table) -> str:
    names = step["install"]
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return " ".join([*step.get("options", []), ", ".join(names[:3]) + rest])


def _install(venv: Path, step: Table, pinned: Sequence[str] | None, log_file: Path) -> None:
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    command += ["--disable-pip-version-check", *step.get("options", [])]
    if pinned is not None:
        pins_file = venv / "constraints.txt"
        pins_file.write_text("\n".join(pinned) + "\n", encoding="utf-8")
        command += ["--constraint", str(pins_file)]
    run([*command, *step["install"]], log_file, step.get("environ"))


def site_packages(venv: Path, python: str) -> Path:
    """Return the directory of the packages of ``venv``; ``python`` is its full version."""
    return venv / "lib" / f"python{'.'.join(python.split('.')[:2])}" / "site-packages"


def build_thin(base: Path, python: Interpreter, target: Path, checkout: Path = ROOT) -> None:
    """Make the environment ``target`` that includes ``base`` and this checkout, unless it exists.

    If only the metadata of the package changed, only gem-core is installed again, because programs
    may be running from ``target``.
    """
    location = json.dumps([LAYOUT, str(base), str(checkout)])
    content = f"{location}\n{_metadata_hash(checkout)}"
    with locked(target):
        if is_complete(target, content):
            return
        log_file = target / "build.log"
        if not is_complete(target, location, part=0):
            shutil.rmtree(target, ignore_errors=True)
            log(f"linking {target} to {base}")
            target.mkdir()
            python_of_base = str(base / "bin" / "python")
            run([python_of_base, "-m", "venv", "--without-pip", str(target)], log_file)
            packages = site_packages(target, python.version)
            # addsitedir instead of a path: .pth files inside the base must work too.
            line = f"import site; site.addsitedir({str(site_packages(base, python.version))!r})\n"
            (packages / "_gem_core_base.pth").write_text(line, encoding="utf-8")
            _copy_commands(base, target)
        log(f"installing gem-core from {checkout} in {target}")
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--no-input"]
        quiet = ["--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
        run([*pip, *quiet, "--editable", str(checkout)], log_file)
        (target / STAMP).write_text(content, encoding="utf-8")


def _metadata_hash(checkout: Path) -> str:
    """Return a hash of the parts of pyproject.toml that the editable install uses."""
    import tomllib

    data = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    used = [data["build-system"], data["project"], data.get("tool", {}).get("hatch")]
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()


def _copy_commands(base: Path, thin: Path) -> None:
    """Copy the commands of the base so that the Python of the thin environment runs them."""
    old = f"#!{base / 'bin' / 'python'}"
    new = f"#!{thin / 'bin' / 'python'}"
    for command in sorted((base / "bin").iterdir()):
        copy = thin / "bin" / command.name
        skipped = copy.exists() or command.is_symlink() or command.is_dir()
        if skipped or not os.access(command, os.X_OK):
            continue
        body = command.read_bytes()
        if body.startswith(old.encode()):
            copy.write_bytes(body.replace(old.encode(), new.encode(), 1))
            copy.chmod(0o755)
        elif not body.startswith(b"#!"):
            copy.symlink_to(command)


# --- commands --------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the directory of the bases."""
    chosen = os.environ.get("GEM_CORE_ENV_CACHE")
    return Path(chosen or "~/.cache/gem-core/envs").expanduser().absolute()


def thin_folder() -> Path:
    """Return the directory of this checkout's environments."""
    return Path(os.environ.get("GEM_CORE_ENVS") or ROOT / ".venvs").expanduser().absolute()


def make(name: str) -> Path:
    """Build an environment if necessary; return its directory."""
    plan = load_plan(name)
    pinned = pins(name)
    python = find_python(plan.python)
    base = cache_folder() / f"{name}-{base_key(plan, pinned, python.version)}"
    build_base(plan, pinned, python, base)
    thin = thin_folder() / name
    build_thin(base, python, thin)
    _mention_old_bases(name, base)
    return thin


def _mention_old_bases(name: str, current: Path) -> None:
    old = [p for p in cache_folder().glob(f"{name}-*") if p.is_dir() and p != current]
    if old:
        log("older builds; delete them if no checkout uses them: " + " ".join(map(str, old)))


def lock(name: str) -> Path:
    """Install without constraints and write ``constraints/NAME.txt`` from the result."""
    plan = load_plan(name)
    python = find_python(plan.python)
    base = cache_folder() / f"{name}-unlocked"
    build_base(plan, None, python, base)
    freeze = subprocess.run(
        [str(base / "bin" / "python"), "-m", "pip", "freeze", "--all", "--exclude", "pip"],
        check=True,
        capture_output=True,
        text=True,
    )
    file = CONSTRAINTS / f"{name}.txt"
    file.write_text(constraints_text(plan, freeze.stdout), encoding="utf-8")
    shutil.rmtree(base)
    return file


def constraints_text(plan: Plan, freeze: str) -> str:
    """Return the text of a constraints file from the output of ``pip freeze``.

    Local version suffixes are removed: ``torch==2.13.0`` also accepts ``2.13.0+cpu``.
    """
    header = (
        f"# {plan.name}: {plan.summary}.\n"
        f"# The exact set of packages under test, CPU, Python {plan.python}. Written by\n"
        f"# `scripts/make_env.py {plan.name} --lock`; how it is installed: environments.toml.\n"
    )
    lines = sorted((line.split("+")[0] for line in freeze.splitlines() if line), key=str.lower)
    unpinned = [line for line in lines if "==" not in line]
    if unpinned:
        raise BuildError(f"pip freeze printed lines that are not pins: {unpinned}")
    return header + "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build a development environment.")
    parser.add_argument("name", help="core, trl, verl, openrlhf, oat or rl2")
    parser.add_argument("--lock", action="store_true", help="write constraints/NAME.txt again")
    options = parser.parse_args(arguments)
    try:
        log(f"ready: {lock(options.name) if options.lock else make(options.name)}")
    except BuildError as error:
        print(f"make_env: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # no tomllib: continue with the interpreter of the sets
        try:
            newer = find_python("3.11").path
        except BuildError as error:
            sys.exit(f"make_env: {error}")
        os.execv(newer, [newer, *sys.argv])
    sys.exit(main())
