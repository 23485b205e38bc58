"""The choice of the trainer under test, run as real pytest processes on a copy of conftest.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["trl", "verl", "openrlhf", "oat", "rl2"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A small test suite with the layout of this one, and a fake distribution of Oat."""
    return write_suite(tmp_path)


def write_suite(folder: Path) -> Path:
    """Write the suite into an empty folder; return it."""
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    tests = folder / "tests"
    for topic in ["core", "contract", "tiny", *(f"integrations/{name}" for name in NAMES)]:
        (tests / topic).mkdir(parents=True)
        name = topic.replace("/", "_")
        (tests / topic / f"test_{name}.py").write_text(f"def test_{name}():\n    pass\n")
    slow = "import pytest\n@pytest.mark.slow\ndef test_slow():\n    pass\n"
    slow += '@pytest.mark.slow("oat", "rl2")\ndef test_slow_with_oat():\n    pass\n'
    (tests / "core" / "test_slow.py").write_text(slow)
    named = "def test_named(trainer_name):\n    assert trainer_name == 'oat'\n"
    (tests / "integrations" / "oat" / "test_named.py").write_text(named)
    shutil.copy(Path(__file__).with_name("conftest.py"), tests / "conftest.py")
    info = folder / "site" / "oat_llm-0.2.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oat-llm\nVersion: 0.2.9\n")
    return folder


def runner(suite: Path) -> Run:
    """Return what runs pytest on a suite, in a new process for each call."""

    def call(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if key != "GEM_TRAINER"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments],
            cwd=suite,
            env={**kept, "PYTHONPATH": str(suite / "site"), **environ},
            capture_output=True,
            text=True,
        )

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run pytest on a suite that no test changes; once, where two tests use the same words."""
    return cache(runner(write_suite(tmp_path_factory.mktemp("suite"))))


def test_without_a_trainer_only_the_core_is_collected(run: Run) -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trainer: none" in done.stdout
    assert "2 passed, 1 deselected" in done.stdout
    assert "test_core" in done.stdout


@pytest.mark.parametrize("how", ["option", "variable"])
def test_one_trainer_adds_its_folder_and_the_contract(run: Run, how: str) -> None:
    done = run("--trainer", "oat") if how == "option" else run(GEM_TRAINER="oat")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trainer: oat 0.2.9" in done.stdout
    for name in ("test_core", "test_contract", "test_tiny", "test_integrations_oat", "test_named"):
        assert f"::{name} PASSED" in done.stdout
    for name in set(NAMES) - {"oat"}:
        assert f"test_integrations_{name}" not in done.stdout


def test_the_option_wins_over_the_variable(run: Run) -> None:
    done = run("--trainer", "none", GEM_TRAINER="oat")
    assert "trainer: none" in done.stdout and done.returncode == 0


def test_slow_tests_run_when_asked_for(run: Run) -> None:
    assert "3 passed" in run("--slow").stdout


def test_a_test_is_slow_with_the_trainers_that_it_names(run: Run) -> None:
    assert "::test_slow_with_oat" not in run("--trainer", "oat").stdout
    assert "::test_slow_with_oat PASSED" in run("--trainer", "oat", "--slow").stdout
    assert "::test_slow_with_oat PASSED" in run().stdout


def test_a_missing_trainer_is_a_usage_error(suite: Path) -> None:
    shutil.rmtree(suite / "site")
    missing = "rl2" if _installed("oat-llm") else "oat"
    done = runner(suite)("--trainer", missing)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"make test-{missing}" in done.stderr


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def test_an_unknown_trainer_is_a_usage_error(run: Run) -> None:
    done = run("--trainer", "trll")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "choose none, trl" in done.stderr


@pytest.mark.parametrize(
    "path", ["tests/integrations/verl", "tests/contract/test_contract.py", "tests/tiny"]
)
def test_asking_for_a_hidden_path_is_a_usage_error(run: Run, path: str) -> None:
    done = run(path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "is hidden without: --trainer" in done.stderr


def test_the_makefile_runs_every_folder_that_needs_a_trainer(request):
    """A folder that the core's run hides and no target names would never be run."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    conftest = next(
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if hasattr(plugin, "WITH_A_TRAINER")
    )
    for folder in conftest.WITH_A_TRAINER:
        names = [str(path.relative_to(ROOT)) for path in (folder, folder.parent)]
        listed = makefile.replace("\n", " ").replace(")", " ").split(" ")
        assert any(name in listed for name in names if name != "tests"), folder
