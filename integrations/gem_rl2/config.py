"""Recipe -> hydra overrides of RL2's ``ppo`` configuration, in the dialect that is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gem_core.errors import RecipeError
from gem_core.recipe import Recipe, get_key, refuse
from gem_rl2._compat import NEWER

_TRAIN, _TEST = "rollout.train_sampling_params", "rollout.test_sampling_params"
_NEWER_TRAIN = "rollout.train.sampling_params"
NAMES: dict[str, tuple[str, str]] = {
    "model.path": ("actor.model_name", "actor.model_name"),
    "model.dtype": ("rollout.server_args.dtype", "actor.dtype"),
    "model.gradient_checkpointing": (
        "actor.gradient_checkpointing", "actor.enable_gradient_checkpointing",
    ),
    "algorithm.estimator": ("adv.estimator", "adv.estimator"),
    "algorithm.gamma": ("adv.gamma", "adv.gamma"),
    "algorithm.lam": ("adv.lamda", "adv.lamda"),
    "algorithm.clip_low": ("actor.clip", "actor.clip"),
    "algorithm.kl_coef": ("actor.kl.coef", "actor.kl.coef"),
    "algorithm.kl_in": ("actor.kl.type", "actor.kl.type"),
    "algorithm.entropy_coef": ("actor.entropy.coef", "actor.entropy.coef"),
    "algorithm.epochs": ("+actor.epochs", ""),
    "algorithm.minibatches": ("actor.update_per_rollout", "actor.update_per_rollout"),
    "algorithm.loss_aggregation": ("actor.avg_level", "actor.avg_level"),
    "algorithm.lr": ("actor.lr", "actor.optimizer.lr"),
    "algorithm.lr_schedule": ("actor.scheduler", "actor.scheduler.name"),
    "algorithm.warmup_steps": ("actor.warmup_ratio", "actor.scheduler.warmup_ratio"),
    "algorithm.betas": ("+actor.betas", "+actor.optimizer.betas"),
    "algorithm.weight_decay": ("actor.weight_decay", "actor.optimizer.weight_decay"),
    "algorithm.max_grad_norm": ("actor.max_grad_norm", "actor.max_grad_norm"),
    "algorithm.critic_lr": ("critic.lr", "critic.optimizer.lr"),
    "batch.episodes": ("train_data.prompts_per_rollout", "rollout.train.prompts_per_rollout"),
    "batch.group_size": ("train_data.responses_per_prompt", "rollout.train.responses_per_prompt"),
    "batch.micro_batch": ("actor.max_length_per_device", "actor.max_length_per_device"),
    "sampling.temperature": (f"{_TRAIN}.temperature", f"{_NEWER_TRAIN}.temperature"),
    "sampling.top_p": (f"+{_TRAIN}.top_p", f"+{_NEWER_TRAIN}.top_p"),
    "sampling.top_k": (f"+{_TRAIN}.top_k", f"+{_NEWER_TRAIN}.top_k"),
    "limits.max_tokens_per_turn": (f"{_TRAIN}.max_new_tokens", f"{_NEWER_TRAIN}.max_new_tokens"),
    "eval.temperature": (f"{_TEST}.temperature", "rollout.test.sampling_params.temperature"),
    "eval.every": ("trainer.test_freq", "trainer.test_freq"),
    "eval.inside_episodes": ("test_data.prompts_per_rollout", "rollout.test.prompts_per_rollout"),
    "train.steps": ("trainer.n_epochs", "trainer.total_steps"),
    "train.save_every": ("trainer.save_freq", "trainer.save_freq"),
}  # fmt: skip
"""Recipe key -> its name in 0.0.2 and in the newer API ("": it has none)."""
TRANSLATED = frozenset(NAMES) | {"algorithm.clip_high", "hardware.engine"}
"""Keys that :func:`translate` turns into native ones, or refuses by value."""
APPLIED = frozenset(
    {
        "seed", "algorithm.options", "train.keep_checkpoints", "train.log_episodes",
        "hardware.device", "hardware.gpus_per_node",
    }
)  # fmt: skip
"""Keys that the adapter carries out beside RL2's configuration."""
REFUSED = {
    "hardware.nodes": "it serves its engines on one node; use nodes = 1 and more GPUs.",
    "algorithm.loss_constant": "it averages over tokens or sequences; change loss_aggregation.",
}
"""Keys that cannot be honoured, and what to do instead."""
# RL2's own filter would run before the statistics over the batch, and dies if nothing is left.
_FILTER = ("rollout.dynamic_filtering", "rollout.train.dynamic_filtering")
_WITH_CRITIC = ("optimizer.", "scheduler.", "max_grad", "dtype", "enable_", "max_len", "model_name")


def _warmup_ratio(recipe: Recipe) -> float:
    """RL2 takes ``int(ratio * updates)``; the addition keeps a quotient from falling below."""
    warmup = recipe.algorithm.warmup_steps
    return (warmup + 1e-6) / max(recipe.train.steps, 1) if warmup else 0.0


def _tokens_per_pass(recipe: Recipe) -> int:
    """RL2 packs sequences of any length into a forward pass of at most this many tokens."""
    updates = recipe.algorithm.minibatches * recipe.hardware.gpus_per_node
    minibatch = -(-recipe.batch.episodes // updates)
    sequences = min(recipe.batch.micro_batch or minibatch, minibatch)
    return sequences * (recipe.limits.max_context_tokens or 0)


COMPUTED: dict[str, Callable[[Recipe], Any]] = {
    "algorithm.lr_schedule": lambda r: (
        "constant_with_warmup" if r.algorithm.lr_schedule == "constant" else r.algorithm.lr_schedule
    ),
    "algorithm.warmup_steps": _warmup_ratio,
    "algorithm.betas": lambda r: list(r.algorithm.betas),
    "algorithm.critic_lr": lambda r: r.algorithm.critic_lr or r.algorithm.lr,
    "batch.episodes": lambda r: r.groups_per_step,
    "batch.micro_batch": _tokens_per_pass,
    "eval.every": lambda r: r.eval.every or None,
    "train.save_every": lambda r: r.train.save_every or None,
}
"""Values that are not the recipe's own."""


def translate(
    recipe: Recipe, *, newer: bool = NEWER, settings: dict[str, Any] | None = None
) -> list[str]:
    """Return hydra overrides; ``[trainer.rl2]`` comes last and wins.

    Args:
        recipe: the experiment.
        newer: in the newer API's dialect instead of 0.0.2's.
        settings: what belongs to a run rather than to the recipe (paths).

    Raises:
        RecipeError: a key that RL2 cannot honour.
    """
    _refuse(recipe, newer)
    keys: dict[str, Any] = {_FILTER[newer]: False, "trainer.use_wandb": False}
    keys |= {"trainer.project": "gem-core", "trainer.experiment_name": recipe.name}
    for key, names in NAMES.items():
        value = COMPUTED[key](recipe) if key in COMPUTED else get_key(recipe, key)
        keys |= {names[newer]: value} if names[newer] else {}
    if newer:
        for key, value in list(keys.items()):
            worker, _, rest = key.partition(".")
            if worker.endswith("actor") and rest.startswith(_WITH_CRITIC):
                keys.setdefault(f"{worker.replace('actor', 'critic')}.{rest}", value)
        # Only its default schedule has a minimum; the others do not take one.
        keys |= {"~actor.scheduler.min_lr": None, "~critic.scheduler.min_lr": None}
    keys |= settings or {}
    for key, value in _flat(recipe.trainer.get("rl2", {})).items():
        keys.pop(f"+{key}", None)
        keys[key] = value
    return [key if key[0] == "~" else f"{key}={_text(value)}" for key, value in keys.items()]


def _refuse(recipe: Recipe, newer: bool) -> None:
    refuse(recipe, "RL2", REFUSED)
    a, hardware = recipe.algorithm, recipe.hardware
    engines = ("default", "hf") if hardware.device == "cpu" else ("default", "sglang")
    checks: list[tuple[str, bool, str]] = [
        ("algorithm.clip_high", a.clip_low != a.clip_high, "set algorithm.clip_low to the same"),
        ("algorithm.loss_aggregation", a.loss_aggregation == "constant", "use 'token'"),
        ("algorithm.epochs", newer and a.epochs > 1, "the newer API has one pass; set it to 1"),
        ("hardware.engine", hardware.engine not in engines, f"on this device: {engines}"),
        ("limits.max_context_tokens", not recipe.limits.max_context_tokens,
         "it packs sequences by length and must know the longest; set it"),
        ("model.revision", recipe.model.revision is not None,
         "it loads the default one; download yours and set model.path to the directory"),
        ("batch.episodes", recipe.batch.episodes < a.minibatches, "fewer than the minibatches"),
    ]  # fmt: skip
    for key, broken, instead in checks:
        if broken:
            value = get_key(recipe, key)
            raise RecipeError(f"RL2 cannot honour {key} = {value!r}: {instead}.")


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested native tables as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _text(value: Any) -> str:
    """A value in hydra's override grammar, which is JSON but for the rules of quoting."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)
