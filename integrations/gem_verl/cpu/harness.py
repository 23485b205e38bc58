"""What a CPU run of verl needs in its configuration and environment. Imports nothing of verl."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gem_adapters.cpu_threads import VARIABLE as THREADS
from gem_adapters.cpu_threads import cpu_threads
from gem_adapters.native_keys import bare, refuse_native, refuse_values
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.allocator import keep_freed_memory
from gem_verl.key_table import ACTOR, MODEL, REF, ROLLOUT

ENGINE = "gem_hf"
"""Name of the Hugging Face generation engine of `gem_verl.cpu.engine` in verl."""
PLATFORM = "gem_verl.cpu.platform"
"""What each process of the run imports with verl."""
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # the engine registered for CUDA is plain torch
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's 15 starves a run on a machine that is shared
    "HYDRA_FULL_ERROR": "1",
}
"""Environment variables of every process of the run."""
WITHOUT_GPU: dict[str, Any] = {
    f"{MODEL}.use_remove_padding": False,
    "critic.model.use_remove_padding": False,
    f"+{MODEL}.override_config.attn_implementation": "sdpa",
    "+critic.model.override_config.attn_implementation": "sdpa",
    f"{ACTOR}.use_torch_compile": False,
    f"{ACTOR}.fsdp_config.use_torch_compile": False,
    f"{REF}.use_torch_compile": False,
    f"{REF}.fsdp_config.use_torch_compile": False,
    "critic.fsdp.use_torch_compile": False,
    f"{ROLLOUT}.name": ENGINE,
    "reward.reward_model.rollout.name": ENGINE,
    f"{ROLLOUT}.load_format": "auto",
}
"""Native keys that the stand-ins need; refused in ``[trainer.verl]`` of a CPU recipe."""
DEFAULTS: dict[str, Any] = {
    f"{ROLLOUT}.agent.num_workers": 1,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "transfer_queue.backend.SimpleStorage.total_storage_size": 10_000,
}
"""Sizes for one machine, which ``[trainer.verl]`` may change."""
RAY = "+ray_kwargs.ray_init"
RAY_DEFAULTS: dict[str, Any] = {
    "ray_kwargs.ray_init.num_cpus": 16,  # a count that Ray keeps, not a number of cores
    f"{RAY}.include_dashboard": False,
    f"{RAY}.object_store_memory": 200_000_000,
}
"""The same for Ray, where the run starts it: not on several nodes."""
RANKS = f"{RAY}.num_gpus"
"""Ray counts CPU ranks as logical GPUs."""
CARRIED = ("VERL_USE_EXTERNAL_MODULES", "PYTHONPATH", THREADS)
"""Variables that processes of a cluster need beside `ENVIRONMENT`."""
NATIVE_OWNED = {
    **{bare(key): "hardware.device = 'cpu' needs its own value there" for key in WITHOUT_GPU},
    bare(RANKS): "set hardware.gpus_per_node instead",
    "ray_kwargs.ray_init._temp_dir": "the launcher sets it",
    "hydra.run.dir": "the launcher sets it",
}
"""Native key -> what decides it in a CPU run."""


@contextmanager
def session(recipe: Recipe) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Prepare one run in this process's environment.

    Yields:
        Native settings and environment variables.
    """
    keep_freed_memory()
    variables = environment(os.environ, cpu_threads(recipe))
    # Ray's sockets need a short path; what it and hydra leave there goes with the run.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as temp:
        yield {"hydra.run.dir": temp, **ray_settings(recipe, temp, variables)}, variables


def ray_settings(recipe: Recipe, temp: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the native settings of Ray that belong to a run.

    Args:
        recipe: the experiment.
        temp: a folder for what Ray writes.
        variables: those of the run's processes.
    """
    if recipe.hardware.nodes == 1:
        return {f"{RAY}._temp_dir": temp}
    # A cluster was started before, without them.
    names = [*ENVIRONMENT, *CARRIED]
    given = {name: variables[name] for name in names if name in variables}
    return {f"{RAY}.runtime_env.env_vars.{name}": value for name, value in given.items()}


def environment(base: Mapping[str, str], threads: int = 1) -> dict[str, str]:
    """Return ``base`` with what chooses the CPU platform in every process of the run.

    Args:
        base: variables of this process.
        threads: of torch in each process.
    """
    modules = [base.get("VERL_USE_EXTERNAL_MODULES"), PLATFORM]
    variables = {**base, **ENVIRONMENT, THREADS: str(threads)}
    variables["VERL_USE_EXTERNAL_MODULES"] = ",".join(filter(None, modules))
    # Ray would look for its logical GPUs among the visible ones.
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    return variables


def settings(recipe: Recipe) -> dict[str, Any]:
    """Return native keys and values in place of a GPU run's.

    ``hardware.gpus_per_node`` becomes the number of CPU ranks. Several nodes are a Ray cluster that
    runs already, whose nodes were started with that many logical GPUs.

    Raises:
        RecipeError: the recipe asks for what needs a GPU, or sets what the stand-ins need.
    """
    hardware = recipe.hardware
    refuse_values(recipe, "verl", [
        ("hardware.engine hardware.device", hardware.engine == "sglang",
         "that engine needs a GPU; leave it out, or use 'hf' or a CPU build of vLLM"),
        ("hardware.sequence_parallel hardware.device", hardware.sequence_parallel != 1,
         "it needs packed sequences, and so flash-attention"),
        ("hardware.engine_tensor_parallel hardware.device", hardware.engine_tensor_parallel != 1,
         "the CPU engine is one process"),
    ])  # fmt: skip
    refuse_native(recipe, "verl", NATIVE_OWNED)
    needed = dict(WITHOUT_GPU)
    if hardware.engine == "vllm":
        needed = {key: value for key, value in WITHOUT_GPU.items() if value != ENGINE}
    started = {**RAY_DEFAULTS, RANKS: hardware.gpus_per_node} if hardware.nodes == 1 else {}
    return {**needed, **DEFAULTS, **started}
