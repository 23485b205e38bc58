"""Recipe -> OpenRLHF's dotted command-line flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.errors import RecipeError
from gem_core.recipe import Recipe, refuse


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRANSLATED = _keys(
    "seed model.gradient_checkpointing train.save_every train.keep_checkpoints eval.every "
    "algorithm.gamma algorithm.lam algorithm.clip_low algorithm.clip_high algorithm.kl_coef "
    "algorithm.kl_in algorithm.entropy_coef algorithm.epochs algorithm.minibatches algorithm.lr "
    "algorithm.loss_aggregation algorithm.lr_schedule algorithm.warmup_steps algorithm.betas "
    "algorithm.weight_decay algorithm.max_grad_norm algorithm.critic_lr batch.episodes "
    "batch.group_size batch.micro_batch sampling.temperature sampling.top_p hardware.device "
    "hardware.nodes hardware.gpus_per_node"
)
APPLIED = _keys(
    "algorithm.estimator algorithm.options sampling.top_k eval.inside_episodes train.steps "
    "train.log_episodes model.dtype hardware.engine"
)
"""Carried out by the adapter itself: experience maker, executor, dataset rows, CPU harness."""
REFUSED = {
    "algorithm.loss_constant": "its loss is a mean over tokens or sequences; set "
    "algorithm.loss_aggregation to 'token' or 'sequence'."
}
OWNED = _keys(
    "algo.advantage.estimator algo.advantage.no_std_norm algo.dynamic_filtering_enable "
    "data.max_len data.max_samples data.prompt_dataset reward.clip_range reward.normalize_enable "
    "reward.overlong_buffer_len reward.stop_properly_penalty_coef rollout.max_new_tokens "
    "rollout.vllm_generate_batch_size train.agent_func_path train.num_episodes"
)
"""Native flags that would be ignored here or change which episodes a step plays."""


def translate(recipe: Recipe) -> list[str]:
    """The recipe as arguments of ``openrlhf.cli.train_ppo_ray``, without the paths of a run.

    Raises:
        RecipeError: a key cannot be honoured.
    """
    return render(flags(recipe))


def render(values: Mapping[str, Any]) -> list[str]:
    """Write flags as arguments: True is a bare flag, False and None are left out."""
    arguments: list[str] = []
    for name, value in values.items():
        if value is not None and value is not False:
            listed = value if isinstance(value, (list, tuple)) else [value]
            arguments += [f"--{name}", *(str(item) for item in listed if item is not True)]
    return arguments


def flags(recipe: Recipe) -> dict[str, Any]:
    """OpenRLHF's flags by dotted name; the recipe's native ones come last and win."""
    refuse(recipe, "openrlhf", REFUSED)
    native = native_flags(recipe)
    _check(recipe)
    return {**_batch(recipe), **_algorithm(recipe), **_rest(recipe), **_layout(recipe), **native}


def native_flags(recipe: Recipe) -> dict[str, Any]:
    """``[trainer.openrlhf]`` with nested tables joined by dots. Raises RecipeError."""
    found: dict[str, Any] = {}
    pending = [("", recipe.trainer.get("openrlhf", {}))]
    while pending:
        prefix, table = pending.pop()
        for key, value in table.items():
            if isinstance(value, Mapping):
                pending.append((f"{prefix}{key}.", value))
            else:
                found[prefix + key] = value
    for key in sorted(found.keys() & OWNED):
        raise RecipeError(f"trainer.openrlhf.{key}: the recipe and the adapter decide that.")
    return found


def is_async(recipe: Recipe) -> bool:
    """Whether generation and training overlap: native flag ``train.async_enable``."""
    return bool(native_flags(recipe).get("train.async_enable", False))


def _check(recipe: Recipe) -> None:
    """Refuse values (not whole keys) that OpenRLHF cannot do."""
    device, engine = recipe.hardware.device, recipe.hardware.engine
    engines = ("default", "vllm") if device == "gpu" else ("default", "hf")
    where = f"with hardware.device = {device!r}"
    refused = {
        "context.history: it trains one append-only sequence": recipe.context.history != "append",
        f"algorithm.loss_aggregation: {REFUSED['algorithm.loss_constant']}": (
            recipe.algorithm.loss_aggregation == "constant"
        ),
        f"model.dtype = 'float32' {where}: it trains in bfloat16": (
            device == "gpu" and recipe.model.dtype == "float32"
        ),
        f"hardware.engine = {engine!r} {where}: use one of {engines}": engine not in engines,
        "hardware.gpus_per_node = 1 in async mode: training and generation need a GPU each": (
            device == "gpu" and is_async(recipe) and recipe.hardware.gpus_per_node < 2
        ),
    }
    for reason in (text for text, holds in refused.items() if holds):
        raise RecipeError(f"openrlhf cannot honour {reason}.")


def _batch(recipe: Recipe) -> dict[str, Any]:
    episodes, minibatches = recipe.batch.episodes, recipe.algorithm.minibatches
    ranks = recipe.hardware.nodes * _train_gpus(recipe)
    per_rank, rest = divmod(episodes, minibatches * ranks)
    micro = min(recipe.batch.micro_batch or per_rank, per_rank)
    if rest or per_rank % micro:
        raise RecipeError(
            f"batch.episodes = {episodes} must be a multiple of algorithm.minibatches x ranks x "
            f"batch.micro_batch = {minibatches} x {ranks} x {micro}."
        )
    return {
        "rollout.batch_size": recipe.groups_per_step,
        "rollout.n_samples_per_prompt": recipe.batch.group_size,
        "rollout.micro_batch_size": micro,
        "rollout.temperature": recipe.sampling.temperature,
        "rollout.top_p": recipe.sampling.top_p,
        "train.batch_size": episodes // minibatches,
        "train.micro_batch_size": micro,
        "train.max_epochs": recipe.algorithm.epochs,
        "train.seed": recipe.seed,
    }


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    algorithm = recipe.algorithm
    in_loss, gae = algorithm.kl_in == "loss", algorithm.estimator == "gae"
    total = recipe.train.steps * algorithm.epochs * algorithm.minibatches
    # OpenRLHF rounds ratio x total up; half a step less makes that exactly ``warmup_steps``.
    warmup = max(0.0, algorithm.warmup_steps - 0.5) / max(1, total)
    schedule = "constant_with_warmup" if algorithm.lr_schedule == "constant" else None
    found = {
        # A carrier: it decides whether there is a critic. The numbers are gem_core's.
        "algo.advantage.estimator": "gae" if gae else "reinforce",
        "algo.advantage.gamma": algorithm.gamma,
        "algo.advantage.lambd": algorithm.lam,
        # Async batches are an update old: weight each token by pi_train / pi_rollout.
        "algo.advantage.is_correction_level": "token" if is_async(recipe) else "off",
        "algo.kl.init_coef": algorithm.kl_coef,
        "algo.kl.use_loss": in_loss,
        "algo.kl.estimator": "k3" if in_loss else "k1",
        "actor.eps_clip_low_high": (algorithm.clip_low, algorithm.clip_high),
        "actor.loss_agg_mode": "token-mean"
        if algorithm.loss_aggregation == "token"
        else "seq-mean-token-mean",
        "actor.entropy_coef": algorithm.entropy_coef,  # also at 0: then it is only logged
    }
    for model, lr in ("actor", algorithm.lr), ("critic", algorithm.critic_lr or algorithm.lr):
        found |= {
            f"{model}.adam.lr": lr,
            f"{model}.adam.betas": algorithm.betas,
            f"{model}.adam.weight_decay": algorithm.weight_decay,
            f"{model}.lr_scheduler": schedule or algorithm.lr_schedule,
            f"{model}.lr_warmup_ratio": warmup,
            f"{model}.max_norm": algorithm.max_grad_norm,
        }
    return found


def _rest(recipe: Recipe) -> dict[str, Any]:
    return {
        "actor.model_name_or_path": recipe.model.path,
        "actor.gradient_checkpointing_enable": recipe.model.gradient_checkpointing,
        "data.max_len": recipe.limits.max_context_tokens,
        "data.label_key": "label",
        "eval.steps": recipe.eval.every or -1,
        "eval.temperature": recipe.eval.temperature,
        "eval.n_samples_per_prompt": 1,
        "ckpt.save_steps": recipe.train.save_every or max(1, recipe.train.steps),
        "ckpt.max_num": recipe.train.keep_checkpoints,
        "ckpt.best_metric_key": "none",
    }


def _train_gpus(recipe: Recipe) -> int:
    """Training processes per node: all GPUs, half of them in async mode; gloo ranks on a CPU."""
    gpus = recipe.hardware.gpus_per_node
    return gpus // 2 if recipe.hardware.device == "gpu" and is_async(recipe) else gpus


def _layout(recipe: Recipe) -> dict[str, Any]:
    """Who sits where: training and generation take turns on all GPUs; async mode splits them."""
    nodes, train = recipe.hardware.nodes, _train_gpus(recipe)
    found: dict[str, Any] = {}
    for model in ("actor", "ref", "critic", "reward"):
        found |= {f"{model}.num_nodes": nodes, f"{model}.num_gpus_per_node": train}
    if recipe.hardware.device == "cpu":
        cpu = {"vllm.num_engines": 1, "vllm.sync_backend": "gloo"}
        return {**found, **cpu, "ds.attn_implementation": "sdpa"}
    found |= {"train.colocate_all": True, "vllm.enable_prefix_caching": True}
    if is_async(recipe):
        return {**found, "vllm.num_engines": nodes * (recipe.hardware.gpus_per_node - train)}
    sleep = {"vllm.enable_sleep": True, "ds.enable_sleep": True}
    memory = {"vllm.num_engines": nodes * train, "vllm.gpu_memory_utilization": 0.6}
    return {**found, **sleep, **memory}
