"""What an adapter says about itself, checked without and with its trainer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gem_core.runs.trainers import check, get_trainer, resolve

MODULES = {"__init__", "rollout", "advantages", "config", "launch", "metrics", "_compat"}
FRAMEWORKS = ("torch", "transformers", "trl", "verl", "openrlhf", "oat", "RL2", "ray", "vllm")


def folder():
    return Path(__file__).parents[2] / "integrations"


def test_the_trainer_is_ready_in_its_environment(trainer_name):
    status = check(get_trainer(trainer_name))
    assert status.ready, status.problems


def test_declaring_a_trainer_imports_no_framework(package):
    code = (
        f"import sys, {package}; from gem_core.runs.trainers import check; "
        f"check({package}.TRAINER); "
        f"print([m for m in {FRAMEWORKS!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_launcher_and_translator_exist(trainer_name):
    trainer = get_trainer(trainer_name)
    assert callable(resolve(trainer.launch)) and callable(resolve(trainer.translate))


def test_the_extra_allows_exactly_the_tested_range(trainer_name):
    from importlib.metadata import requires

    trainer = get_trainer(trainer_name)
    lines = [line for line in requires("gem-core") or [] if f"extra == '{trainer_name}'" in line]
    (line,) = [
        entry
        for entry in lines
        if entry.replace(" ", "").lower().startswith(trainer.distribution.lower())
    ]
    ranges = SpecifierSet(line.split(";")[0].strip()[len(trainer.distribution) :].strip(" ()"))
    tested = SpecifierSet(trainer.tested_range)
    probes = [*trainer.tested, check(trainer).version, "0.0.0", "99.0"]
    for probe in probes:
        assert (Version(probe) in ranges) == (Version(probe) in tested), probe


def test_every_adapter_has_the_same_modules(package):
    files = {path.stem for path in (folder() / package).glob("*.py")}
    assert files >= MODULES, f"missing modules: {sorted(MODULES - files)}"
    assert (folder() / package / "README.md").stat().st_size > 500


def test_nothing_outside_the_adapter_imports_it(package):
    root = Path(__file__).parents[2]
    # The trainer's own loop, on its stand-ins, its runs with real engines, the layout of its rows,
    # and the faults that are put into adapters.
    own_loop = root / "benchmarks" / "overhead" / f"own_{package.removeprefix('gem_')}.py"
    trainer = package.removeprefix("gem_")
    parts = ("cases", "checks", "weights")
    engines = [root / "benchmarks" / "engines" / f"{trainer}_{part}.py" for part in parts]
    rows = root / "benchmarks" / f"{trainer}_rows" / "run.py"
    faults = [root / "benchmarks" / "parity" / name for name in ("faults.py", "two_ranks.py")]
    replays = root / "benchmarks" / "parity" / "src" / "gem_replays"
    offenders = []
    for area in ("gem_core", "integrations", "benchmarks"):
        for path in (root / area).rglob("*.py"):
            if package in path.parts or path in (own_loop, rows, *engines, *faults):
                continue
            if path.parent == replays and path.stem.partition("_")[0] == trainer:
                continue
            text = path.read_text()
            if f"import {package}" in text or f"from {package}" in text:
                offenders.append(str(path.relative_to(root)))
    assert offenders == []
