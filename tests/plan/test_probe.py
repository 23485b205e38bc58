"""What the doctor reads of a machine: here, with programs in the place of the driver's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gem_core.envs.graders import math
from gem_core.runs.recipe.load import load_recipe
from gem_preflight.readiness.facts import Gpu
from gem_preflight.readiness.probe import MIB, Here


@pytest.fixture
def program(tmp_path, monkeypatch):
    """``program(name, script)``: a shell script of that name, first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return write


def test_the_gpus_of_the_driver(program):
    program(
        "nvidia-smi", 'echo "NVIDIA H100 80GB HBM3, 81559, 9.0"; echo "NVIDIA GB10, [N/A], 12.1"'
    )
    machine = Here().machine(Path("runs"))
    assert machine.gpus == (
        Gpu("NVIDIA H100 80GB HBM3", 81559 * MIB, (9, 0)),
        Gpu("NVIDIA GB10", 0, (12, 1)),
    )
    assert machine.driver_error == ""


def test_a_driver_that_does_not_know_the_capability(program):
    program("nvidia-smi", 'case "$1" in *compute_cap*) echo "not a valid field"; exit 2;; esac\n'
            'echo "Tesla V100, 16384"')  # fmt: skip
    assert Here().machine(Path("runs")).gpus == (Gpu("Tesla V100", 16384 * MIB),)


def test_a_driver_that_fails_says_why(program):
    program(
        "nvidia-smi", 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18'
    )
    machine = Here().machine(Path("runs"))
    assert machine.gpus == ()
    assert machine.driver_error == "Failed to initialize NVML: Driver/library version mismatch"


def test_the_compiler_the_disk_and_the_shared_memory(program, tmp_path):
    program("nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
    machine = Here().machine(tmp_path / "not" / "there")
    assert machine.nvcc == "13.0"
    assert machine.disk_bytes > 0
    statistics = os.statvfs("/dev/shm")
    assert machine.shm_bytes == statistics.f_frsize * statistics.f_blocks


@pytest.mark.parametrize(("value", "hidden"), [("", True), ("-1", True), ("0", False)])
def test_hidden_gpus(monkeypatch, value, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert Here().machine(Path("runs")).hidden is hidden


@pytest.mark.parametrize(
    ("version", "url", "torch"),
    [
        ("2.8.3", None, None),
        ("2.8.3+cu12torch2.8cxx11abiTRUE", None, "2.8"),
        ("2.8.3", "https://x/flash_attn-2.8.3+cu13torch2.13cxx11abiTRUE-cp311.whl", "2.13"),
    ],
)
def test_the_torch_that_flash_attn_was_built_for(tmp_path, monkeypatch, version, url, torch):
    folder = tmp_path / f"flash_attn-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: flash-attn\nVersion: {version}\n")
    if url:
        (folder / "direct_url.json").write_text(f'{{"url": "{url}"}}')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Here().built_for("flash-attn") == torch
    assert Here().version("flash-attn") == version


def test_the_environments_of_a_recipe_are_made(monkeypatch):
    assert Here().environment_error(load_recipe("math-python", "tiny")) == ""
    without_data = load_recipe("math-python", "tiny", ["env.0.kwargs.dataset=no/such.jsonl"])
    assert "no/such.jsonl" in Here().environment_error(without_data)
    monkeypatch.setattr(math, "find_spec", lambda name: None)
    error = Here().environment_error(load_recipe("math-python", "tiny"))
    assert "gem-core[math]" in error
