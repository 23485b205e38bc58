"""Missing packages and changed methods are early errors; the CPU backend keeps off GPUs."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gem_core.errors import GemError, MissingDependencyError
from gem_core.runs.directory.run_dir import RunDir
from gem_openrlhf import _compat, command_line, launch
from gem_openrlhf.cpu import harness, real_vllm

MAKER = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker"

MISSING = """
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.launch import launch
from gem_core.runs.resolved import resolve_run
recipe = load_recipe("guess-the-number-easy", "paper")
launch(resolve_run(recipe, "openrlhf"), RunDir.create({path!r}, recipe, "openrlhf"))
"""
HIDDEN = """
import gem_core.runs.trainers as trainers
from gem_core.runs.launch import launch
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.resolved import resolve_run
original = trainers.find_spec
trainers.find_spec = lambda name: None if name == "deepspeed" else original(name)
launch(resolve_run(load_recipe("guess-the-number-easy", "tiny"), "openrlhf"), None)
"""
GPU = """
import torch
torch.cuda.is_available = lambda: True
from gem_openrlhf.cpu import harness
harness.apply()
"""
IMPORTS = """
import sys
import gem_openrlhf.config
heavy = [name for name in ("torch", "ray", "transformers") if name in sys.modules]
import gem_openrlhf.launch
stand_ins = [name for name in sys.modules if name.startswith(("gem_openrlhf.cpu", "vllm"))]
print(heavy, stand_ins)
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


def test_importing_the_launcher_imports_no_stand_in():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[] []"], done.stderr


def test_the_methods_that_the_adapter_relies_on_are_what_they_were(monkeypatch):
    _compat.check_private_signatures()
    path = "openrlhf.utils.agent:AgentExecutorBase.execute"
    monkeypatch.setitem(_compat.PRIVATE_SIGNATURES, path, "self prompt")
    with pytest.raises(MissingDependencyError, match=r"execute takes .* install an OpenRLHF"):
        _compat.check_private_signatures()


def test_overriding_methods_take_the_same_parameters():
    from gem_openrlhf.advantages import GemExperienceMaker
    from gem_openrlhf.rollout import GemAgentExecutor

    ours = {
        "openrlhf.utils.agent:AgentExecutorBase.execute": GemAgentExecutor.execute,
        f"{MAKER}.make_experience_batch": GemExperienceMaker.make_experience_batch,
        f"{MAKER}.compute_advantages_and_returns": (
            GemExperienceMaker.compute_advantages_and_returns
        ),
    }
    for path, method in ours.items():
        parameters = " ".join(inspect.signature(method).parameters)
        assert parameters == _compat.PRIVATE_SIGNATURES[path]


def test_a_parser_that_is_built_otherwise_is_an_error(tmp_path, monkeypatch):
    source = tmp_path / "other.py"
    source.write_text("import argparse\n")
    spec = SimpleNamespace(origin=str(source))
    monkeypatch.setattr(command_line, "find_spec", lambda name: spec)
    with pytest.raises(GemError, match=r"install a tested version, openrlhf>=0\.11\.2"):
        command_line.parser.__wrapped__()


def test_the_harness_refuses_a_gpu():
    error = last_line(GPU)
    assert "GemError" in error and "hardware.device=gpu" in error


@pytest.mark.parametrize("name", ["flash_attn", "vllm"])
def test_the_stand_ins_are_declared_as_such(name):
    module = __import__(name)
    assert "Stand-in" in module.__doc__


def test_the_stand_in_refuses_ring_attention():
    from flash_attn.utils.distributed import all_gather

    with pytest.raises(NotImplementedError, match="Ring attention"):
        all_gather(None, None)


def test_the_stand_in_packs_and_unpacks():
    import torch
    from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input

    tokens = torch.tensor([[0, 1, 2], [3, 0, 0], [4, 5, 0]])
    mask = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 1, 0]])
    packed, indices, starts, longest, lengths = unpad_input(tokens.unsqueeze(-1), mask)
    assert packed.flatten().tolist() == [1, 2, 3, 4, 5]
    assert starts.tolist() == [0, 2, 3, 5]
    assert (longest, lengths.tolist()) == (2, [2, 1, 2])
    assert index_first_axis(tokens.flatten(), indices).tolist() == [1, 2, 3, 4, 5]
    assert torch.equal(pad_input(packed, indices, 3, 3).squeeze(-1), tokens * mask)


class Started(Exception):
    """Carries what OpenRLHF gives ``ray.init``."""


@pytest.mark.parametrize("own", [{}, {"NCCL_DEBUG": "INFO"}], ids=["unset", "set"])
def test_rays_workers_have_the_variables_that_openrlhf_sets_itself(
    tiny, tmp_path, monkeypatch, own
):
    """It sets them only where it starts Ray, which the adapter does in its place."""
    from openrlhf.cli import train_ppo_ray

    def init(**options):
        raise Started(options)

    for name in ("NCCL_DEBUG", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    # Imported again by other tests, which run it as a program.
    sys.modules.pop("openrlhf.cli.train_ppo_ray", None)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    with pytest.raises(Started) as started:
        train_ppo_ray.train(SimpleNamespace())
    expected = started.value.args[0]["runtime_env"]["env_vars"]
    assert expected.keys() >= {"NCCL_DEBUG", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"}
    recipe = tiny()
    run = RunDir.create(tmp_path / "run", recipe, "openrlhf")
    with launch.ray_options(recipe, run) as options:
        given = options["runtime_env"]["env_vars"]
    expected["TOKENIZERS_PARALLELISM"] = "false"  # the engines tokenise in a thread each
    assert expected.items() <= given.items()


def test_vllm_on_a_cpu_is_asked_for_by_name(tiny, monkeypatch):
    recipe = tiny("hardware.engine=vllm", "model.dtype=bfloat16")
    monkeypatch.setattr("gem_openrlhf.cpu.real_vllm.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"make_env\.py openrlhf-vllm"):
        harness.choose_engine(recipe)
    assert real_vllm.CHOSEN not in os.environ
