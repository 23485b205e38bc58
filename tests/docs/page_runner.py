"""Runs the blocks of one page of docs/write: ``python page_runner.py PAGE FOLDER``.

Each block is run in the order of the page, in the folder, with these rules.

- Python: a block after a line that begins with a file's name is saved there and imported; another
  one is run. TOML: saved under its name; a recipe is loaded, a pyproject.toml is parsed.
- Shell: each line is a ``gem-core`` command, which is run, ``export NAME=value``, or ``pip install
  -e FOLDER``, after which the package can be imported and its entry points are found. A run is not
  trained: ``--dry-run`` checks it, for every trainer. Nor are all checks of a trainer made, which
  needs torch and minutes: it must be declared.

A block of another kind, or without a name where it needs one, is an error. The last line of the
output is the number of blocks that were run.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from gem_core.cli import main
from gem_core.cli.parser import build_parser
from gem_core.env.registration.references import trust
from gem_core.runs import trainers
from gem_core.runs.recipe.load import load_recipe

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from installed_plugin import install_plugin

FENCE = re.compile(r"^```(.*)$", re.MULTILINE)
BLOCK = re.compile(
    r"(?:^`(?P<name>[\w/.]+)`[:,][^\n]*\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
GROUPS = {"envs", "tools", "advantages", "sandboxes"}


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Return kind, name and text of each block of a page.

    >>> blocks("`a.py`:\\n\\n```python\\nx = 1\\n```\\n")
    [('python', 'a.py', 'x = 1\\n')]
    """
    found = [(one["kind"], one["name"] or "", one["text"]) for one in BLOCK.finditer(page)]
    assert 2 * len(found) == len(FENCE.findall(page)), "a fence of the page is none of a block"
    return found


def run_page(page: Path, folder: Path) -> int:
    """Run every block of a page; return how many there were."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    namespace: dict[str, Any] = {"__name__": "page"}
    found = blocks(page.read_text(encoding="utf-8"))
    for kind, name, text in found:
        if name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        if kind == "python" and name:
            importlib.import_module(name.removesuffix(".py").replace("/", "."))
        elif kind == "python":
            exec(compile(text, page.name, "exec"), namespace)
        elif kind == "toml":
            run_toml(name)
        elif kind == "bash":
            for line in text.splitlines():
                run_line(line)
        else:
            raise AssertionError(f"{page.name}: no rule runs a block of the kind {kind!r}")
    return len(found)


def run_toml(name: str) -> None:
    """Load a recipe, or parse the description of a package."""
    assert name, "a block of TOML needs the name of its file in the line before it"
    if name != "pyproject.toml":
        with trust(True):
            load_recipe(name)
        return
    project = tomllib.loads(Path(name).read_text(encoding="utf-8"))["project"]
    assert {f"gem_core.{group}" for group in GROUPS} == set(project["entry-points"])


def run_line(line: str) -> None:
    """Run a line of a shell block."""
    program, *rest = shlex.split(line)
    if program == "export":
        key, _, value = rest[0].partition("=")
        os.environ[key] = value
        return
    if [program, *rest[:-1]] == ["pip", "install", "-e"]:
        os.environ["PYTHONPATH"] = install_plugin(Path(rest[-1]).resolve(), Path("site").resolve())
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
        return
    assert program == "gem-core", f"no rule runs this line: {line}"
    if rest[0] == "train":
        check_training(rest)
    elif rest[0] == "conform" and "--only" not in rest:
        assert build_parser().parse_args(rest).trainer in trainers.trainer_names(), line
    else:
        assert main(rest) == 0, line


def check_training(arguments: list[str]) -> None:
    """Have a command check itself, for each trainer; one with ``--trust`` is refused without."""
    assert build_parser().parse_args(arguments).trainer in trainers.trainer_names()
    for name, trainer in trainers.list_trainers().items():
        expected = 0 if trainers.check(trainer).ready else 1  # 1: it could not start here
        assert main([*arguments, "--trainer", name, "--dry-run"]) == expected, (name, arguments)
    if "--trust" in arguments:
        without = [word for word in arguments if word != "--trust"]
        assert main([*without, "--dry-run"]) == 2, f"--trust is not needed: {arguments}"


if __name__ == "__main__":
    print(run_page(Path(sys.argv[1]), Path(sys.argv[2])))
