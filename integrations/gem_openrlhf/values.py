"""What OpenRLHF's flags are set to, where a recipe's value is not handed over as it is."""

from __future__ import annotations

from typing import Any

from gem_adapters.estimate import needs_critic
from gem_adapters.key_table import LEFT_OUT
from gem_core.errors import RecipeError
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe

# -- the algorithm --------------------------------------------------------------------------------


def clip(recipe: Recipe) -> tuple[float, float]:
    """Return the lower and upper side of the PPO clip."""
    return recipe.algorithm.clip_low, recipe.algorithm.clip_high


def estimator(recipe: Recipe) -> str:
    """Return ``gae`` with a critic, else ``reinforce``; the advantages are gem-core's."""
    return "gae" if needs_critic(recipe) else "reinforce"


def kl_in_loss(recipe: Recipe) -> bool:
    """Return whether the KL term is in the loss."""
    return recipe.algorithm.kl_in == "loss"


def kl_estimator(recipe: Recipe) -> str:
    """Return ``k3`` for a KL term in the loss, ``k1`` for one in the reward."""
    return "k3" if kl_in_loss(recipe) else "k1"


def loss_aggregation(recipe: Recipe) -> str:
    """Return ``token-mean`` for ``token``, ``seq-mean-token-mean`` for ``sequence``."""
    names = {"token": "token-mean", "sequence": "seq-mean-token-mean"}
    return names[recipe.algorithm.loss_aggregation]


def warmup_ratio(recipe: Recipe) -> float:
    """Return the ratio that makes ``warmup_steps``: OpenRLHF rounds ratio x updates up.

    The recipe counts training steps, OpenRLHF optimizer steps.
    """
    algorithm = recipe.algorithm
    per_step = algorithm.epochs * algorithm.minibatches
    warmup = algorithm.warmup_steps * per_step
    return max(0.0, warmup - 0.5) / max(1, recipe.train.steps * per_step)


# -- batches and steps ----------------------------------------------------------------------------


def micro_batch(recipe: Recipe) -> int:
    """Return the sequences per forward pass of a training process; 1 where tokens are counted.

    Raises:
        RecipeError: a batch cannot be divided like that.
    """
    episodes = recipe.batch.episodes
    minibatches = recipe.algorithm.minibatches
    ranks = recipe.hardware.nodes * train_gpus(recipe)
    per_rank, rest = divmod(episodes, minibatches * ranks)
    whole = 1 if is_dynamic(recipe) else per_rank
    micro = min(recipe.batch.micro_batch or whole, per_rank)
    if rest or per_rank % micro:
        raise RecipeError(
            f"batch.episodes = {episodes} must be a multiple of algorithm.minibatches = "
            f"{minibatches} x {ranks} ranks (hardware.nodes x hardware.gpus_per_node) x "
            f"batch.micro_batch = {micro}."
        )
    return micro


def is_dynamic(recipe: Recipe) -> bool:
    """Return whether a forward pass takes as many sequences as fit into a number of tokens."""
    return recipe.batch.max_tokens_per_device is not None


def longest_may_not_fit(recipe: Recipe) -> bool:
    """Return whether an episode may have more tokens than a forward pass."""
    most = recipe.batch.max_tokens_per_device
    longest = recipe.limits.max_context_tokens
    return most is not None and (longest is None or longest > most)


def eval_steps(recipe: Recipe) -> int:
    """Return the training steps between evaluations; -1 is never."""
    return recipe.eval.every or -1


def save_steps(recipe: Recipe) -> int:
    """Return the training steps between checkpoints: all of them where only the last is kept."""
    return recipe.train.save_every or max(1, recipe.train.steps)


# -- the model ------------------------------------------------------------------------------------


def lora_alpha(recipe: Recipe) -> int:
    """Return LoRA's alpha as OpenRLHF's whole number."""
    return int(recipe.model.lora.alpha)


def lora_targets(recipe: Recipe) -> list[str] | None:
    """Return the names of the modules with adapters; None is OpenRLHF's default, all linear."""
    return list(recipe.model.lora.targets) or None


def zero_stage(recipe: Recipe) -> int | None:
    """Return the stage of DeepSpeed's ZeRO: 0, 2 or 3; None is OpenRLHF's default, 2."""
    return {"default": None, "none": 0, "optimizer": 2, "full": 3}[recipe.hardware.sharding]


def offloads_optimizer(recipe: Recipe) -> bool:
    """Return whether the optimizer's states are in the host's memory."""
    return recipe.hardware.offload == "optimizer"


# -- the hardware ---------------------------------------------------------------------------------


def is_async(recipe: Recipe) -> bool:
    """Return whether generation and training overlap: native flag ``train.async_enable``."""
    native = flatten(recipe.trainer.get("openrlhf", {}))
    return bool(native.get("train.async_enable", False))


def nodes(recipe: Recipe) -> int:
    """Return the machines that train."""
    return recipe.hardware.nodes


def train_gpus(recipe: Recipe) -> int:
    """Return the training processes per node: all GPUs, or half in async mode; ranks on a CPU."""
    gpus = recipe.hardware.gpus_per_node
    if recipe.hardware.device == "gpu" and is_async(recipe):
        return gpus // 2
    return gpus


def engine_gpus(recipe: Recipe) -> int:
    """Return the GPUs of each node that generate: all GPUs, or the other half in async mode."""
    gpus = recipe.hardware.gpus_per_node
    return gpus - train_gpus(recipe) if is_async(recipe) else gpus


def on_cpu(recipe: Recipe) -> bool:
    """Return whether the CPU harness runs."""
    return recipe.hardware.device == "cpu"


def on_gpu(recipe: Recipe) -> bool:
    """Return whether GPUs train and generate."""
    return not on_cpu(recipe)


def takes_turns(recipe: Recipe) -> bool:
    """Return whether training and generation take turns on the same GPUs."""
    return on_gpu(recipe) and not is_async(recipe)


def engines(recipe: Recipe) -> int:
    """Return the engines that fill the GPUs that generate; 1 on a CPU."""
    if on_cpu(recipe):
        return 1
    hardware = recipe.hardware
    return hardware.nodes * (engine_gpus(recipe) // hardware.engine_tensor_parallel)


def training_sleeps(recipe: Recipe) -> Any:
    """Return whether DeepSpeed moves its states away while the engine samples: divided ones."""
    return recipe.hardware.sharding != "none" if takes_turns(recipe) else LEFT_OUT


def eager_on_cpu(recipe: Recipe) -> Any:
    """Return whether vLLM samples, on a CPU."""
    return recipe.hardware.engine == "vllm" if on_cpu(recipe) else LEFT_OUT
