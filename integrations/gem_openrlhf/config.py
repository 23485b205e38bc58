"""Recipe -> OpenRLHF's dotted command-line flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.adapters.native_keys import core_keys, refuse_keys
from gem_core.errors import RecipeError
from gem_core.training.recipe import Recipe, flatten, recipe_keys


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


APPLIED = _keys(
    "algorithm.estimator algorithm.options algorithm.gamma algorithm.lam sampling.top_k "
    "eval.inside_episodes train.steps train.log_episodes model.dtype hardware.engine"
)
"""Carried out by the adapter itself: experience maker, executor, dataset rows, CPU harness."""
REFUSED = {
    "algorithm.loss_constant": "its loss is a mean; use loss_aggregation 'token' or 'sequence'.",
    "context.history": "it trains one token sequence per episode; use history = 'append'.",
    "model.revision": "it loads the main one; download yours and set model.path to its folder.",
}
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that `flags` turns into native ones."""
OWNED = _keys(
    "algo.advantage.estimator algo.advantage.gamma algo.advantage.lambd algo.advantage.no_std_norm "
    "algo.dynamic_filtering_enable data.max_len data.max_samples data.prompt_dataset "
    "reward.clip_range reward.normalize_enable reward.overlong_buffer_len "
    "reward.stop_properly_penalty_coef rollout.max_new_tokens rollout.vllm_generate_batch_size "
    "train.agent_func_path train.num_episodes"
)
"""Native flags that would be ignored here or change which episodes a step plays."""
_MEANS = {"token": "token-mean", "sequence": "seq-mean-token-mean"}


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
    refuse_keys(recipe, "openrlhf", REFUSED)
    _check(recipe)
    parts = (_batch(recipe), _algorithm(recipe), _rest(recipe), _layout(recipe))
    own = {name: value for part in parts for name, value in flatten(part).items()}
    return own | native_flags(recipe)


def native_flags(recipe: Recipe) -> dict[str, Any]:
    """``[trainer.openrlhf]`` by dotted name. Raises RecipeError."""
    found = flatten(recipe.trainer.get("openrlhf", {}))
    for key in sorted(found.keys() & OWNED):
        raise RecipeError(f"trainer.openrlhf.{key}: the recipe and the adapter decide that.")
    return found


def is_async(recipe: Recipe) -> bool:
    """Whether generation and training overlap: native flag ``train.async_enable``."""
    return bool(native_flags(recipe).get("train.async_enable", False))


def _check(recipe: Recipe) -> None:
    """Refuse values (not whole keys) that OpenRLHF cannot do."""
    gpu, engine = recipe.hardware.device == "gpu", recipe.hardware.engine
    engines = ("default", "vllm") if gpu else ("default", "hf")
    float32, one_gpu = recipe.model.dtype == "float32", recipe.hardware.gpus_per_node == 1
    where = f"with hardware.device = {recipe.hardware.device!r}"
    refused = {
        f"model.dtype = 'float32' {where}: use 'bfloat16'": gpu and float32,
        f"hardware.engine = {engine!r} {where}: use one of {engines}": engine not in engines,
        "hardware.gpus_per_node = 1 in async mode: training and generation need a GPU each": (
            gpu and one_gpu and is_async(recipe)
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
    groups = {"batch_size": recipe.groups_per_step, "n_samples_per_prompt": recipe.batch.group_size}
    sampling = {"temperature": recipe.sampling.temperature, "top_p": recipe.sampling.top_p}
    updates = {"batch_size": episodes // minibatches, "max_epochs": recipe.algorithm.epochs}
    return {
        "rollout": {**groups, **sampling, "micro_batch_size": micro},
        "train": {**updates, "micro_batch_size": micro, "seed": recipe.seed},
    }


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    algorithm = recipe.algorithm
    total = recipe.train.steps * algorithm.epochs * algorithm.minibatches
    adam = {"betas": algorithm.betas, "weight_decay": algorithm.weight_decay}
    optimizer = {
        "lr_scheduler": algorithm.schedule_name,
        # OpenRLHF rounds ratio x total up; half a step less makes that exactly ``warmup_steps``.
        "lr_warmup_ratio": max(0.0, algorithm.warmup_steps - 0.5) / max(1, total),
        "max_norm": algorithm.max_grad_norm,
    }
    actor = {
        "eps_clip_low_high": (algorithm.clip_low, algorithm.clip_high),
        "loss_agg_mode": _MEANS[algorithm.loss_aggregation],
        "entropy_coef": algorithm.entropy_coef,  # also at 0: then it is only logged
    }
    advantage = {
        # A carrier: it decides whether there is a critic. The numbers are gem_core's.
        "estimator": "gae" if algorithm.estimator == "gae" else "reinforce",
        # Async batches are an update old: weight each token by pi_train / pi_rollout.
        "is_correction_level": "token" if is_async(recipe) else "off",
    }
    in_loss = algorithm.kl_in == "loss"
    kl = {"use_loss": in_loss, "estimator": "k3" if in_loss else "k1"}
    return {
        "algo": {"advantage": advantage, "kl": {**kl, "init_coef": algorithm.kl_coef}},
        "actor": {**optimizer, **actor, "adam": {**adam, "lr": algorithm.lr}},
        "critic": {**optimizer, "adam": {**adam, "lr": algorithm.critic_lr or algorithm.lr}},
    }


def _rest(recipe: Recipe) -> dict[str, Any]:
    train, check = recipe.train, recipe.eval
    every = train.save_every or max(1, train.steps)
    return {
        "actor.model_name_or_path": recipe.model.path,
        "actor.gradient_checkpointing_enable": recipe.model.gradient_checkpointing,
        "data": {"max_len": recipe.limits.max_context_tokens, "label_key": "label"},
        "eval": {"steps": check.every or -1, "temperature": check.temperature},
        "eval.n_samples_per_prompt": 1,
        "ckpt": {"save_steps": every, "max_num": train.keep_checkpoints, "best_metric_key": "none"},
    }


def _train_gpus(recipe: Recipe) -> int:
    """Training processes per node: all GPUs, half of them in async mode; gloo ranks on a CPU."""
    gpus = recipe.hardware.gpus_per_node
    return gpus // 2 if recipe.hardware.device == "gpu" and is_async(recipe) else gpus


def _layout(recipe: Recipe) -> dict[str, Any]:
    """Who sits where: training and generation take turns on all GPUs; async mode splits them."""
    nodes, train = recipe.hardware.nodes, _train_gpus(recipe)
    size = {"num_nodes": nodes, "num_gpus_per_node": train}
    found: dict[str, Any] = dict.fromkeys(("actor", "ref", "critic", "reward"), size)
    if recipe.hardware.device == "cpu":
        vllm: dict[str, Any] = {"num_engines": 1, "sync_backend": "gloo"}
        return {**found, "vllm": vllm, "ds.attn_implementation": "sdpa"}
    found["train.colocate_all"] = True
    engines = nodes * (recipe.hardware.gpus_per_node - train if is_async(recipe) else train)
    vllm = {"num_engines": engines, "enable_prefix_caching": True}
    if is_async(recipe):
        return {**found, "vllm": vllm}
    sleep = {"enable_sleep": True, "gpu_memory_utilization": 0.6}
    return {**found, "vllm": {**vllm, **sleep}, "ds.enable_sleep": True}
