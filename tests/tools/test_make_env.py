"""scripts/make_env.py builds real virtual environments here, without any package index."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import hatchling
import pytest

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "gem-core"
version = "{version}"
[project.scripts]
hello = "hello:main"
"""


@pytest.fixture(scope="session")
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    return load_tool("make_env")


@pytest.fixture
def python(tool: ModuleType) -> Any:
    base = getattr(sys, "_base_executable", sys.executable)
    return tool.Interpreter(base, platform.python_version())


@pytest.fixture
def empty_plan(tool: ModuleType) -> Any:
    return tool.Plan("empty", "3.11", "nothing but pip", ())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "hello").mkdir(parents=True)
    (folder / "hello" / "__init__.py").write_text("def main():\n    print('hello', __file__)\n")
    write_version(folder, "1.0")
    return folder


def write_version(checkout: Path, version: str) -> None:
    text = PYPROJECT.format(version=version)
    text += '[tool.hatch.build.targets.wheel]\npackages = ["hello"]\ndev-mode-dirs = ["."]\n'
    (checkout / "pyproject.toml").write_text(text)


def the_base_of_this_run() -> Path:
    """The environment that holds hatchling: <base>/lib/python3.x/site-packages/hatchling."""
    return Path(hatchling.__file__).parents[4]


def count_venvs(target: Path) -> int:
    return (target / "build.log").read_text().count(" -m venv ")


# --- data ---


def test_an_unknown_name_lists_the_known_ones(tool: ModuleType) -> None:
    with pytest.raises(tool.BuildError, match=r"core, floors, trl, trl-vllm, verl, .*rl2"):
        tool.load_plan("trll")


def test_the_common_packages_are_the_last_step(tool: ModuleType) -> None:
    assert "pytest>=8" in tool.load_plan("trl").steps[-1]["install"]


def test_an_unknown_key_in_a_step_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text('python="3.11"\ncommon=[]\n[a]\nsummary=""\n[[a.steps]]\ninstal=["x"]\n')
    with pytest.raises(tool.BuildError, match="instal"):
        tool.load_plan("a", file)


def test_the_key_follows_pins_steps_and_python_but_not_comments(
    tool: ModuleType, empty_plan: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("# one comment\nx==1\n")
    (tmp_path / "b.txt").write_text("# another\n\nx==1\n")
    (tmp_path / "c.txt").write_text("x==2\n")
    a, b, c = (
        tool.base_key(empty_plan, tool.pins(name, tmp_path), "3.11.7") for name in ("a", "b", "c")
    )
    other = empty_plan._replace(steps=({"install": ["x"]},))
    assert a == b
    keys = {a, c, tool.base_key(empty_plan, ["x==1"], "3.11.8"), tool.base_key(other, ["x==1"], "")}
    assert len(keys) == 4


def test_a_freeze_becomes_constraints_without_local_versions(
    tool: ModuleType, empty_plan: Any
) -> None:
    text = tool.constraints_text(empty_plan, "torch==2.13.0+cpu\nattrs==26.1.0\n")
    assert text.splitlines()[-2:] == ["attrs==26.1.0", "torch==2.13.0"]
    with pytest.raises(tool.BuildError, match="-e git"):
        tool.constraints_text(empty_plan, "-e git+somewhere\n")


# --- interpreter ---


def test_a_shim_that_does_not_run_is_passed_over(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "shims" / "python3.11"
    real = tmp_path / "bin" / "python3.11"
    for file, body in {shim: "echo 'command not found' >&2; exit 127", real: ""}.items():
        file.parent.mkdir()
        file.write_text("#!/bin/sh\n" + (body or f'exec "{sys.executable}" "$@"') + "\n")
        file.chmod(0o755)
    monkeypatch.delenv("GEM_CORE_PYTHON", raising=False)
    monkeypatch.setattr(tool.sys, "executable", str(shim))
    release = ".".join(platform.python_version_tuple()[:2])

    monkeypatch.setenv("PATH", f"{shim.parent}:{real.parent}")
    assert tool.find_python(release).version == platform.python_version()

    monkeypatch.setenv("PATH", str(shim.parent))
    with pytest.raises(tool.BuildError) as caught:
        tool.find_python(release)
    assert "command not found" in str(caught.value)
    assert f"Install Python {release}" in str(caught.value)


def test_the_wrong_version_is_named(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEM_CORE_PYTHON", sys.executable)
    with pytest.raises(tool.BuildError, match=f"is Python {platform.python_version()}"):
        tool.find_python("3.99")


# --- base ---


def test_an_interrupted_build_is_started_again(
    tool: ModuleType, empty_plan: Any, python: Any, tmp_path: Path, capfd: Any
) -> None:
    target = tmp_path / "base"
    (target / "bin").mkdir(parents=True)
    (target / "half").touch()
    tool.build_base(empty_plan, [], python, target)
    assert "is not complete" in capfd.readouterr().out
    assert not (target / "half").exists()
    assert tool.is_complete(target, tool.base_key(empty_plan, [], python.version))
    tool.build_base(empty_plan, [], python, target)
    assert count_venvs(target) == 1
    assert capfd.readouterr().out == ""


def test_two_builders_make_one_environment(
    tool: ModuleType, empty_plan: Any, python: Any, tmp_path: Path
) -> None:
    target = tmp_path / "base"
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(tool.build_base, empty_plan, [], python, target) for _ in range(2)]
        for build in builds:
            build.result()
    assert count_venvs(target) == 1


def test_a_failing_step_shows_its_end_and_leaves_no_stamp(
    tool: ModuleType, empty_plan: Any, python: Any, tmp_path: Path
) -> None:
    step = {"install": ["no-such-package"], "options": ["--no-index"]}
    target = tmp_path / "base"
    with pytest.raises(tool.BuildError) as caught:
        tool.build_base(empty_plan._replace(steps=(step,)), ["x==1"], python, target)
    message = str(caught.value)
    assert "No matching distribution found for no-such-package" in message
    assert "pip install" in message and "--no-index" in message and "build.log" in message
    assert not (target / tool.STAMP).exists()


# --- thin ---


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_thin_environment_sees_base_and_checkout_also_in_children(
    tool: ModuleType, python: Any, tmp_path: Path, checkout: Path
) -> None:
    base = the_base_of_this_run()
    thin = tmp_path / "thin"
    tool.build_thin(base, python, thin, checkout)

    assert run(thin / "bin" / "hello") == f"hello {checkout / 'hello' / '__init__.py'}"
    child = "import json, sys; print(json.dumps(sys.path[1:]))"
    code = (
        "import json, subprocess, sys, hello, hatchling;"
        f"child = subprocess.check_output([sys.executable, '-c', {child!r}]);"
        "print(json.dumps([hatchling.__file__, sys.path[1:], json.loads(child)]))"
    )
    file, parent, child_path = json.loads(run(thin / "bin" / "python", "-c", code))
    assert file == hatchling.__file__
    assert parent == child_path
    assert run(thin / "bin" / "pytest", "--version").startswith("pytest ")


def test_the_thin_environment_is_only_touched_when_the_metadata_changed(
    tool: ModuleType, python: Any, tmp_path: Path, checkout: Path
) -> None:
    base = the_base_of_this_run()
    thin = tmp_path / "thin"
    version = (thin / "bin" / "python", "-m", "pip", "show", "gem-core")

    def events() -> tuple[int, int]:
        log = (thin / "build.log").read_text()
        return log.count(" -m venv "), log.count(" --editable ")

    tool.build_thin(base, python, thin, checkout)
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("[tool.ruff]\nline-length = 100\n")
    tool.build_thin(base, python, thin, checkout)
    assert events() == (1, 1)
    write_version(checkout, "1.1")
    tool.build_thin(base, python, thin, checkout)
    assert events() == (1, 2)
    assert "Version: 1.1" in run(*version)
    moved = checkout.rename(tmp_path / "moved")
    tool.build_thin(base, python, thin, moved)
    assert run(thin / "bin" / "hello") == f"hello {moved / 'hello' / '__init__.py'}"
    shutil.rmtree(thin)
