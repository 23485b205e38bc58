"""What is missing is said once, before anything starts; the harness keeps away from GPUs."""

from __future__ import annotations

import subprocess
import sys

import pytest

MISSING = """
from gem_core.training.recipe import load_recipe
from gem_core.training.runs import RunDir
from gem_core.training.trainers import launch
recipe = load_recipe("guess-the-number-easy", "paper")
launch("openrlhf", recipe, RunDir.create({path!r}, recipe, "openrlhf"))
"""
HIDDEN = """
import gem_core.training.trainers as trainers
found = trainers.find_spec
trainers.find_spec = lambda name: None if name == "deepspeed" else found(name)
trainers.launch("openrlhf", None, None)
"""
GPU = """
import torch
torch.cuda.is_available = lambda: True
from gem_openrlhf.cpu import harness
harness.apply()
"""


def last_line(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_a_gpu_recipe_without_the_gpu_packages(tmp_path):
    error = last_line(MISSING.format(path=str(tmp_path / "run")))
    assert "MissingDependencyError" in error and "flash_attn, vllm" in error
    assert "pip install flash-attn==2.8.3 --no-build-isolation" in error


def test_without_deepspeed_even_a_cpu_recipe_does_not_start():
    error = last_line(HIDDEN)
    assert "MissingDependencyError" in error and "pip install deepspeed" in error


def test_the_harness_refuses_a_gpu():
    error = last_line(GPU)
    assert "GemError" in error and "hardware.device=gpu" in error


@pytest.mark.parametrize("name", ["flash_attn", "vllm"])
def test_the_stand_ins_say_what_they_are(name):
    module = __import__(name)
    assert "Stand-in" in module.__doc__


def test_the_stand_in_refuses_packed_samples():
    from flash_attn.bert_padding import unpad_input

    with pytest.raises(NotImplementedError, match="packing_samples"):
        unpad_input(None, None)
