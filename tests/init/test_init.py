"""`gem-core init`: the package that it writes is the one of examples/, and works when installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from pkgutil import resolve_name

import pytest

from gem_core.cli import main
from gem_core.errors import GemError
from gem_init.names import derive_names
from gem_init.package import render_package

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"
LEFT_BY_TOOLS = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", "dist", "runs"}


def texts_of(folder: Path) -> dict[str, str]:
    """Return the text of every file below a folder by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not LEFT_BY_TOOLS.intersection(path.relative_to(folder).parts)
    }


def test_the_example_is_what_the_command_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my-envs"]) == 0
    assert texts_of(tmp_path / "my-envs") == texts_of(EXAMPLE), "gem-core init my-envs is newer"
    assert [path.name for path in tmp_path.iterdir()] == ["my-envs"]
    said = capsys.readouterr().out
    assert "pip install -e my-envs" in said and "gem-core check my:Change-v0" in said


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("my-envs", ("my-envs", "my-envs", "my_envs", "my")),
        ("work/board_games", ("board_games", "board-games", "board_games", "board-games")),
        ("Rooms2-env", ("Rooms2-env", "Rooms2-env", "Rooms2_env", "Rooms2")),
        ("envs-x", ("envs-x", "envs-x", "envs_x", "envs-x")),
    ],
)
def test_names_are_made_of_the_name_of_the_folder(folder, names):
    assert derive_names(Path(folder)) == names


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("2048-envs", "cannot be the name of a package"),
        ("my envs", "cannot be the name of a package"),
        ("my.envs", "cannot be the name of a package"),
        ("-envs", "cannot be the name of a package"),
        ("_envs", "cannot be the name of a package"),
        ("my--envs", "cannot be the name of a package"),
        ("étoile", "cannot be the name of a package"),
        ("class", "cannot be the name of a package"),
        ("json", "there is a module 'json' already"),
        ("gem-core", "there is a module 'gem_core' already"),
        ("game-envs", "ids of gem-core itself begin with game:"),
        ("openenv-envs", "ids of gem-core itself begin with openenv:"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_in_one_line(
    tmp_path, monkeypatch, capsys, name, reason
):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--", name]) == GemError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trainer", [False, True])
def test_what_its_readme_refers_to_is_in_a_wheel(trainer):
    """The pages of the repository are not; what `python -m pydoc` is told to show is."""
    readme = render_package(derive_names(Path("my-envs"), trainer=trainer))[Path("README.md")]
    shown = re.findall(r"`(?:python -m pydoc )?(gem_core(?:\.\w+)+)`", readme)
    assert "pip show --verbose gem-core" in readme
    assert shown and all(resolve_name(name).__doc__ for name in shown)


def test_nothing_is_overwritten(tmp_path, capsys):
    for place, file in (("full", "full/notes.txt"), ("file", "file"), ("none/new", "there.txt")):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        before = texts_of(tmp_path)
        assert main(["init", str(tmp_path / place)]) == GemError.exit_code
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert texts_of(tmp_path) == before
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["init", str(empty)]) == 0


def test_a_name_that_the_template_has_and_nobody_gives_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "a.py.in").write_text("$distribution $author")
    monkeypatch.setattr("gem_init.package._TEMPLATE", tmp_path)
    with pytest.raises(KeyError, match="author"):
        render_package(derive_names(Path("my-envs")))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A function that runs Python where the wheel of a new package, of any name, is installed."""
    folder = tmp_path_factory.mktemp("installed")
    package = folder / "board-games"
    assert main(["init", str(package)]) == 0
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=package, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    path = os.pathsep.join(filter(None, [str(folder / "site"), os.environ.get("PYTHONPATH")]))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=package,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_its_own_tests_pass(installed):
    done = installed("pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_find_what_it_has(installed):
    done = installed("gem_core", "check", "board-games:Change-v0")
    assert done.returncode == 0 and "checks passed" in done.stdout, done.stdout + done.stderr
    done = installed("gem_core", "show", "recipe.toml", "--profile", "tiny")
    assert done.returncode == 0, done.stderr
    assert "expert  success 1.000" in done.stdout
    assert 'algorithm.estimator = "board-games-centred"' in done.stdout


def test_the_example_trainer_is_what_the_command_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "gem-plain", "--trainer"]) == 0
    written, example = texts_of(tmp_path / "gem-plain"), texts_of(EXAMPLE.parent / "trainer")
    assert {"README.md", "gem_plain/launch.py"} < written.keys()
    assert [name for name, text in written.items() if name != "README.md"] == [
        name for name in example if name != "README.md"
    ]
    different = [name for name in written if written[name] != example[name]]
    assert different == ["README.md"], "gem-core init --trainer is newer"  # that of a checkout
    assert "gem-core conform plain" in capsys.readouterr().out


def test_a_trainer_has_the_name_of_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "our-own-trainer", "--trainer"]) == 0
    files = texts_of(tmp_path / "our-own-trainer")
    assert 'our-own = "our_own_trainer:TRAINER"' in files["pyproject.toml"]
    assert 'name="our-own"' in files["our_own_trainer/__init__.py"]
    assert not [name for name, text in files.items() if "gem_plain" in text or '"plain"' in text]
    assert main(["init", "trl-trainer", "--trainer"]) == GemError.exit_code
    assert "there is a trainer trl already" in capsys.readouterr().err
