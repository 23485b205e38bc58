"""What a CPU run of verl needs in its configuration and environment. Imports nothing of verl."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gem_core.errors import RecipeError
from gem_core.training.allocator import keep_freed_memory
from gem_core.training.recipe import Recipe

ENGINE = "gem_hf"
"""Name of the Hugging Face generation engine of `gem_verl.cpu.engine` in verl."""
PLATFORM = "gem_verl.cpu.platform"


@contextmanager
def session(recipe: Recipe) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """``(overrides, environment)`` of one run in this process's environment, CPU or not."""
    if recipe.hardware.device != "cpu":
        yield {}, dict(os.environ)
        return
    keep_freed_memory()
    # Ray's sockets need a short path; what it and hydra leave there goes with the run.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as temp:
        own = {"+ray_kwargs.ray_init._temp_dir": temp, "hydra.run.dir": temp}
        yield own, environment(dict(os.environ))


def environment(base: dict[str, str]) -> dict[str, str]:
    """``base`` with what chooses the CPU platform in every process of the run."""
    others = base.get("VERL_USE_EXTERNAL_MODULES")
    ours = {
        "VERL_USE_EXTERNAL_MODULES": ",".join(filter(None, [others, PLATFORM])),
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",  # the engine registered for CUDA is plain torch
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Ray's 15 starves a run on a machine that is shared
        "HYDRA_FULL_ERROR": "1",
    }
    # Ray would look for its logical GPUs among the visible ones.
    return {key: value for key, value in base.items() if key != "CUDA_VISIBLE_DEVICES"} | ours


def keys(recipe: Recipe) -> dict[str, Any]:
    """Overrides on top of a GPU run's. ``gpus_per_node`` becomes the number of CPU ranks.

    Raises:
        RecipeError: the recipe asks for what needs a GPU.
    """
    if recipe.hardware.engine not in ("default", "hf"):
        raise RecipeError(
            f"verl cannot honour hardware.engine = {recipe.hardware.engine!r} with "
            "hardware.device = 'cpu': it needs a GPU. Leave it out, or use 'hf'."
        )
    if recipe.hardware.nodes != 1:
        raise RecipeError("verl cannot honour hardware.nodes > 1 with hardware.device = 'cpu'.")
    actor, ref = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
    found: dict[str, Any] = {}
    for model in ("actor_rollout_ref.model", "critic.model"):
        found[f"{model}.use_remove_padding"] = False
        found[f"+{model}.override_config.attn_implementation"] = "sdpa"
    for owner in (actor, f"{actor}.fsdp_config", ref, f"{ref}.fsdp_config", "critic.fsdp"):
        found[f"{owner}.use_torch_compile"] = False
    for owner in (actor, "critic"):
        found[f"{owner}.ppo_max_token_len_per_gpu"] = 10**7  # a whole minibatch at once
    return found | {
        "actor_rollout_ref.rollout.name": ENGINE,
        "reward.reward_model.rollout.name": ENGINE,
        "actor_rollout_ref.rollout.load_format": "auto",
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "trainer.device": "cpu",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "transfer_queue.backend.SimpleStorage.total_storage_size": 10_000,
        "ray_kwargs.ray_init.num_cpus": 16,
        "+ray_kwargs.ray_init.num_gpus": recipe.hardware.gpus_per_node,
        "+ray_kwargs.ray_init.include_dashboard": False,
        "+ray_kwargs.ray_init.object_store_memory": 200_000_000,
    }
