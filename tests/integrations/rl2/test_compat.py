"""What a user is told where something is missing, and what ``doctor`` says where nothing is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gem_core.runs.trainers import get_trainer

TRAINER = get_trainer("rl2")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("module", sorted(TRAINER.modules))
def test_a_missing_package_is_one_error_with_its_install_line(module):
    done = python(f"import sys; sys.modules[{module!r}] = None; import gem_rl2.launch")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "MissingDependencyError" in last
    assert f"module {module} is missing: {TRAINER.modules[module]}" in last
    assert "gem-core doctor" in last


def test_an_untested_version_is_refused():
    code = (
        "import gem_core.runs.trainers as t; t.installed_version = lambda name: '0.0.3'; "
        "import gem_rl2.launch"
    )
    last = python(code).stderr.strip().splitlines()[-1]
    assert "rl-square 0.0.3 is outside the tested range >=0.0.2,<0.0.3" in last
    assert TRAINER.install in last


def test_doctor_finds_it_ready():
    done = subprocess.run(
        [sys.executable, "-m", "gem_core.cli", "doctor"], capture_output=True, text=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["rl2"]]
    assert "0.0.2" in line and "ready on CPU" in line
