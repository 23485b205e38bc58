"""What an adapter says about itself, checked without and with its trainer."""

from __future__ import annotations

from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gem_conform.candidate import Candidate
from gem_conform.declared import check_declaration
from gem_core.runs.trainers import check, get_trainer

MODULES = {"__init__", "rollout", "advantages", "config", "launch", "metrics", "_compat"}


def folder():
    return Path(__file__).parents[2] / "integrations"


def test_the_trainer_is_ready_and_declaring_it_imports_no_framework(trainer_name, tmp_path):
    check_declaration(Candidate(trainer_name, tmp_path))


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
    # The trainer's own loop, on its stand-ins, its runs with real engines, its updates on tensors
    # without data, the layout of its rows, and the faults that are put into adapters.
    own_loop = root / "benchmarks" / "overhead" / f"own_{package.removeprefix('gem_')}.py"
    trainer = package.removeprefix("gem_")
    parts = ("cases", "checks", "weights")
    engines = [root / "benchmarks" / "engines" / f"{trainer}_{part}.py" for part in parts]
    rows = root / "benchmarks" / f"{trainer}_rows" / "run.py"
    memory = root / "benchmarks" / "gpu_memory" / f"{trainer}_update.py"
    faults = [root / "benchmarks" / "parity" / name for name in ("faults.py", "two_ranks.py")]
    replays = root / "benchmarks" / "parity" / "src" / "gem_replays"
    offenders = []
    for area in ("gem_core", "integrations", "benchmarks"):
        for path in (root / area).rglob("*.py"):
            if package in path.parts or path in (own_loop, rows, memory, *engines, *faults):
                continue
            if path.parent == replays and path.stem.partition("_")[0] == trainer:
                continue
            text = path.read_text()
            if f"import {package}" in text or f"from {package}" in text:
                offenders.append(str(path.relative_to(root)))
    assert offenders == []
