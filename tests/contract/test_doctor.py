"""``gem-core doctor`` in the real environment of the adapter under test: a CPU, and no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gem_core.runs.install import normal, stack
from gem_core.runs.trainers import get_trainer
from gem_preflight.readiness.probe import Here

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def name(request) -> str:
    return request.config.getoption("--trainer")


def doctor(*arguments: str) -> tuple[int, dict]:
    command = [sys.executable, "-m", "gem_core.cli", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_it_is_ready_on_a_cpu_with_the_tiny_profile(name, tmp_path):
    recipe = ("--recipe", "guess-the-number-easy", "--profile", "tiny", "--run", str(tmp_path))
    code, said = doctor("--trainer", name, *recipe)
    (verdict,) = said["trainers"]
    assert (code, verdict["problems"]) == (0, [])
    assert said["ready"] and verdict["version"]
    assert verdict["state"] == "ready on CPU (tiny profile, stand-in engine)"


def test_it_is_not_ready_on_a_gpu_and_every_line_is_one_of_the_lines(name, tmp_path):
    code, said = doctor("--trainer", name, "--device", "gpu", "--run", str(tmp_path))
    (verdict,) = said["trainers"]
    assert (code, said["ready"], verdict["ready"]) == (1, False, False)
    texts = [problem["text"] for problem in verdict["problems"]]
    assert any("no GPU was found" in text or "hides every GPU" in text for text in texts), texts
    if name == "oat" and sys.version_info >= (3, 11):  # nothing of it can be right, then
        assert texts[0].startswith("needs Python >=3.10,<3.11"), texts
    else:
        assert any("is a build for CPUs" in text for text in texts) or "+cpu" not in _torch(), texts
    for problem in verdict["problems"]:
        pips = [part for part in problem["fix"].split(" && ") if part.startswith("pip install")]
        assert all(part in stack(name).lines for part in pips), problem


def test_what_it_needs_is_declared_so_that_the_lines_install_it(name):
    """The real metadata of the trainer that is installed here, held against what was resolved."""
    chosen, probe = stack(name), Here()
    distribution = get_trainer(name).distribution
    lines = (ROOT / "constraints" / "gpu" / f"{name}.txt").read_text().splitlines()
    versions = {normal(a): b for a, _, b in (line.partition("==") for line in lines)}
    held = 0
    for text in probe.requires(distribution):
        wanted = Requirement(text)
        active = ("", *chosen.holds[distribution])
        on = wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in active)
        if on and normal(wanted.name) in {normal(watched) for watched in chosen.watched}:
            installed = versions[normal(wanted.name)]
            assert wanted.specifier.contains(installed, prereleases=True), (text, installed)
            held += 1
    assert held, "the trainer declares nothing of what is watched: the names in `watched` are wrong"


def test_an_import_that_fails_is_found(monkeypatch, tmp_path):
    (tmp_path / "gem_broken.py").write_text("raise OSError('libnothing.so.1: not found')")
    (tmp_path / "gem_dies.py").write_text("import os; os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = Here().import_errors(["json:loads", "json:nothing", "gem_broken", "gem_dies", "csv"])
    assert set(told) == {"json:nothing", "gem_broken", "gem_dies"}
    assert told["gem_broken"] == "OSError: libnothing.so.1: not found"
    assert told["gem_dies"].startswith("Python ended with exit code 3")


def _torch() -> str:
    return Here().version("torch") or ""
