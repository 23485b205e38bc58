"""Recipe -> hydra overrides of RL2's ``ppo`` configuration, in the dialect that is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from gem_core.adapters.hydra import override
from gem_core.adapters.native_keys import core_keys, refuse_keys, refuse_values
from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe, flatten, get_key, recipe_keys
from gem_core.training.runs import RunDir
from gem_rl2._compat import NEWER
from gem_rl2.newer.key_names import to_newer

_TRAIN, _TEST = "rollout.train_sampling_params", "rollout.test_sampling_params"
NAMES = {
    "model.path": "actor.model_name", "model.dtype": "rollout.server_args.dtype",
    "model.gradient_checkpointing": "actor.gradient_checkpointing",
    "algorithm.estimator": "adv.estimator", "algorithm.gamma": "adv.gamma",
    "algorithm.lam": "adv.lamda", "algorithm.clip_low": "actor.clip",
    "algorithm.kl_coef": "actor.kl.coef", "algorithm.kl_in": "actor.kl.type",
    "algorithm.entropy_coef": "actor.entropy.coef", "algorithm.epochs": "+actor.epochs",
    "algorithm.minibatches": "actor.update_per_rollout",
    "algorithm.loss_aggregation": "actor.avg_level", "algorithm.lr": "actor.lr",
    "algorithm.lr_schedule": "actor.scheduler", "algorithm.warmup_steps": "actor.warmup_ratio",
    "algorithm.betas": "+actor.betas", "algorithm.weight_decay": "actor.weight_decay",
    "algorithm.max_grad_norm": "actor.max_grad_norm", "algorithm.critic_lr": "critic.lr",
    "batch.episodes": "train_data.prompts_per_rollout",
    "batch.group_size": "train_data.responses_per_prompt",
    "batch.micro_batch": "actor.max_length_per_device",
    "sampling.temperature": f"{_TRAIN}.temperature", "sampling.top_p": f"+{_TRAIN}.top_p",
    "sampling.top_k": f"+{_TRAIN}.top_k", "limits.max_tokens_per_turn": f"{_TRAIN}.max_new_tokens",
    "eval.temperature": f"{_TEST}.temperature", "eval.every": "trainer.test_freq",
    "eval.inside_episodes": "test_data.prompts_per_rollout",
    "train.steps": "trainer.n_epochs", "train.save_every": "trainer.save_freq",
}  # fmt: skip
"""Recipe key -> its name in 0.0.2."""
APPLIED = frozenset({
    "seed", "algorithm.options", "train.keep_checkpoints", "train.log_episodes",
    "hardware.device", "hardware.gpus_per_node",
})  # fmt: skip
"""Keys that the adapter carries out beside RL2's configuration."""
REFUSED = {
    "hardware.nodes": "it serves its engines on one node; use nodes = 1 and more GPUs.",
    "algorithm.loss_constant": "it averages over tokens or sequences; change loss_aggregation.",
    "model.revision": "it loads the default one; set model.path to a download of yours.",
}
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that `translate` turns into native ones, or refuses by value."""


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
    "algorithm.lr_schedule": lambda r: r.algorithm.schedule_name,
    "algorithm.warmup_steps": _warmup_ratio,
    "algorithm.critic_lr": lambda r: r.algorithm.critic_lr or r.algorithm.lr,
    "batch.episodes": lambda r: r.groups_per_step,
    "batch.micro_batch": _tokens_per_pass,
    "eval.every": lambda r: r.eval.every or None,
    "train.save_every": lambda r: r.train.save_every or r.train.steps,
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
    keys: dict[str, Any] = {"trainer.project": "gem-core", "trainer.experiment_name": recipe.name}
    # RL2's own filter would run before the statistics over the batch, and dies if nothing is left.
    keys |= {"rollout.dynamic_filtering": False, "trainer.use_wandb": False}
    for key, name in NAMES.items():
        keys[name] = COMPUTED[key](recipe) if key in COMPUTED else get_key(recipe, key)
    keys |= {f"++critic.{name}": f"${{actor.{name}}}" for name in ("betas", "epochs")}
    keys = to_newer(keys) if newer else keys
    keys |= settings or {}
    for key, value in flatten(recipe.trainer.get("rl2", {})).items():
        keys.pop(f"+{key}", None)
        keys[key] = value
    return [override(key, value) for key, value in keys.items()]


def settings_of(run: RunDir, resume: bool = False) -> dict[str, Any]:
    """Overrides for what belongs to a run."""
    return {
        "actor.model_name": model_path(run.recipe),
        "trainer.save_dir": str(run.checkpoints.resolve()),
        "trainer.load_ckpt_from": "latest" if resume else None,
    }


def native_config(recipe: Recipe, settings: dict[str, Any]) -> Any:
    """RL2's own configuration, composed by hydra from the recipe and a run's ``settings``."""
    (package,) = find_spec("RL2").submodule_search_locations
    with initialize_config_dir(str(Path(package, "trainer", "config")), version_base=None):
        return compose("ppo", translate(recipe, settings=settings))


def _refuse(recipe: Recipe, newer: bool) -> None:
    refuse_keys(recipe, "RL2", REFUSED)
    a, hardware = recipe.algorithm, recipe.hardware
    engines = ("default", "hf") if hardware.device == "cpu" else ("default", "sglang")
    refuse_values(recipe, "RL2", [
        ("algorithm.clip_high", a.clip_low != a.clip_high, "set algorithm.clip_low to the same"),
        ("algorithm.epochs", newer and a.epochs > 1, "the newer API has one pass; set it to 1"),
        ("hardware.engine", hardware.engine not in engines, f"on this device: {engines}"),
        ("limits.max_context_tokens", not recipe.limits.max_context_tokens,
         "it packs sequences by length and must know the longest; set it"),
    ])  # fmt: skip
