"""Recipe -> hydra overrides of RL2's ``ppo`` configuration, in the names of the installed API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_adapters.estimate import needs_critic
from gem_adapters.hydra import followers, override, refuse_unknown
from gem_adapters.native_keys import (
    bare,
    core_keys,
    native_table,
    refuse_keys,
    refuse_native,
    refuse_values,
)
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe, TrainConfig, get_key, recipe_keys
from gem_core.training.tiny import model_source
from gem_rl2._compat import NEWER
from gem_rl2.native import compose_native, native_keys
from gem_rl2.newer import key_names

TRAIN = "rollout.train_sampling_params"
TEST = "rollout.test_sampling_params"
NAMES = {
    "name": "trainer.experiment_name",
    "model.path": "actor.model_name",
    "model.dtype": "rollout.server_args.dtype",
    "model.gradient_checkpointing": "actor.gradient_checkpointing",
    "algorithm.estimator": "adv.estimator",
    "algorithm.gamma": "adv.gamma",
    "algorithm.lam": "adv.lamda",
    "algorithm.clip_low": "actor.clip",
    "algorithm.kl_coef": "actor.kl.coef",
    "algorithm.kl_in": "actor.kl.type",
    "algorithm.entropy_coef": "actor.entropy.coef",
    "algorithm.epochs": "+actor.epochs",
    "algorithm.minibatches": "actor.update_per_rollout",
    "algorithm.loss_aggregation": "actor.avg_level",
    "algorithm.lr": "actor.lr",
    "algorithm.lr_schedule": "actor.scheduler",
    "algorithm.warmup_steps": "actor.warmup_ratio",
    "algorithm.betas": "+actor.betas",
    "algorithm.weight_decay": "actor.weight_decay",
    "algorithm.max_grad_norm": "actor.max_grad_norm",
    "algorithm.critic_lr": "critic.lr",
    "algorithm.value_clip": "critic.clip",
    "batch.episodes": "train_data.prompts_per_rollout",
    "batch.group_size": "train_data.responses_per_prompt",
    "batch.micro_batch": "actor.max_length_per_device",
    "sampling.temperature": f"{TRAIN}.temperature",
    "sampling.top_p": f"+{TRAIN}.top_p",
    "sampling.top_k": f"+{TRAIN}.top_k",
    "limits.max_tokens_per_turn": f"{TRAIN}.max_new_tokens",
    "eval.temperature": f"{TEST}.temperature",
    "eval.every": "trainer.test_freq",
    "eval.inside_episodes": "test_data.prompts_per_rollout",
    "train.steps": "trainer.n_epochs",
    "train.save_every": "trainer.save_freq",
    "hardware.sequence_parallel": "actor.sp_size",
    "hardware.tensor_parallel": "actor.tp_size",
}
"""Recipe key -> its name in 0.0.2; ``+`` where RL2's own configuration does not have it."""
OF_EVALUATIONS = {"sampling.top_p": f"+{TEST}.top_p", "sampling.top_k": f"+{TEST}.top_k"}
"""Recipe key -> its second name, for evaluations, which are cut as training is."""
APPLIED = frozenset(
    {
        "seed",
        "algorithm.options",
        "algorithm.rollout_correction",
        "algorithm.rollout_cap",
        "batch.max_tokens_per_device",
        "train.keep_checkpoints",
        "train.log_episodes",
        "train.save_minutes",
        "hardware.device",
        "hardware.gpus_per_node",
    }
)
"""Keys that the adapter carries out beside RL2's configuration, or that change the value of another
one's native key (`_tokens_per_pass`)."""
REFUSED = {
    "hardware.nodes": "it serves its engines on one node; use nodes = 1 and more GPUs.",
    "algorithm.loss_constant": "it averages over tokens or sequences; change loss_aggregation.",
    "model.lora.rank": "it has no adapters; leave it 0, or take TRL, verl or OpenRLHF.",
    "model.lora.alpha": "it has no adapters; leave it out.",
    "model.lora.targets": "it has no adapters; leave it out.",
    "hardware.engine_tensor_parallel": "not tried with gem-core; set rollout.server_args.tp_size.",
    "hardware.sharding": "it divides everything among its ranks, always; leave it 'default'.",
    "hardware.offload": (
        "it moves weights and optimizer states to the host between its phases by itself; "
        "actor.offload_model and actor.offload_optimizer turn that off."
    ),
}
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = frozenset(recipe_keys()) - core_keys() - APPLIED - REFUSED.keys()
"""Keys that `translate` turns into native ones, or refuses by value."""
NATIVE_DEFAULTS = {
    "trainer.project": "gem-core",
    "trainer.use_wandb": False,
    "actor.kl.loss_estimator": "k3",
}
"""What suits better than RL2's own defaults; ``[trainer.rl2]`` may set it otherwise."""
NATIVE_FREE = frozenset(
    f"{worker}.max_inference_length_per_device" for worker in ("actor", "ref_actor", "critic")
)
"""Follow ``batch.micro_batch`` until ``[trainer.rl2]`` sets them: they change no figure."""
_TASKS = "the tasks follow from the recipe: set env and seed instead"
_STATISTICS = "set algorithm.estimator and algorithm.options instead"
_STOP = "the stop tokens are those of context.template, and they are kept"
ADAPTER_OWNED = {
    "train_data.path": _TASKS,
    "test_data.path": _TASKS,
    "test_data.responses_per_prompt": "set eval.inside_episodes instead",
    "rollout.env_path": "gem-core plays the episodes: set env instead",
    "rollout.max_turns": "set limits.max_turns instead",
    "rollout.dynamic_filtering": "the estimator needs every episode of a step, so it must stay off",
    "actor.tis_coef": "set algorithm.rollout_correction instead",
    f"{TRAIN}.no_stop_trim": _STOP,
    f"{TRAIN}.stop_token_ids": _STOP,
    f"{TRAIN}.stop": _STOP,
    f"{TEST}.max_new_tokens": "set limits.max_tokens_per_turn instead",
    f"{TEST}.no_stop_trim": _STOP,
    f"{TEST}.stop_token_ids": _STOP,
    f"{TEST}.stop": _STOP,
    "critic.avg_level": "the critic's error is a mean over all that it is trained on",
    "adv.global_norm": _STATISTICS,
    "adv.norm_var": _STATISTICS,
    "trainer.save_dir": "checkpoints are in the run directory: set --run instead",
    "trainer.load_ckpt_from": "use --resume instead",
}
"""Keys of 0.0.2 that the adapter decides, or does without -> why, or what to do instead."""


def _warmup_ratio(recipe: Recipe) -> float:
    """RL2 takes ``int(ratio * updates)``; the addition keeps a quotient from falling below."""
    warmup = recipe.algorithm.warmup_steps
    if not warmup:
        return 0.0
    return (warmup + 1e-6) / max(recipe.train.steps, 1)


def _tokens_per_pass(recipe: Recipe) -> int:
    """RL2 packs sequences of any length into a forward pass of at most this many tokens."""
    if recipe.batch.max_tokens_per_device is not None:
        return recipe.batch.max_tokens_per_device
    hardware = recipe.hardware
    shared = hardware.sequence_parallel * hardware.tensor_parallel
    updates = recipe.algorithm.minibatches * hardware.gpus_per_node // shared
    minibatch = -(-recipe.batch.episodes // updates)  # rounded up
    sequences = min(recipe.batch.micro_batch or minibatch, minibatch)
    return sequences * (recipe.limits.max_context_tokens or 0)


def _estimator(recipe: Recipe) -> str:
    """RL2 trains a critic where this is "gae"; the advantages are gem_core's in any case."""
    return "gae" if needs_critic(recipe) else recipe.algorithm.estimator


COMPUTED: dict[str, Callable[[Recipe], Any]] = {
    "algorithm.estimator": _estimator,
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
    recipe: Recipe, *, newer: bool = NEWER, settings: Mapping[str, Any] | None = None
) -> list[str]:
    """Return hydra overrides; those of ``[trainer.rl2]`` come last.

    Args:
        recipe: the experiment.
        newer: under the newer API's names instead of 0.0.2's.
        settings: what belongs to a run rather than to the recipe (paths).

    Raises:
        RecipeError: a key that RL2 cannot honour, or a native key that something else decides or
            that RL2 does not have.
    """
    _refuse(recipe, newer)
    keys: dict[str, Any] = dict(NATIVE_DEFAULTS)
    for key, native in [*NAMES.items(), *OF_EVALUATIONS.items()]:
        keys[native] = COMPUTED[key](recipe) if key in COMPUTED else get_key(recipe, key)
    # RL2's own filter would run before the statistics over the batch, and dies if nothing is left.
    keys["rollout.dynamic_filtering"] = False
    keys["++critic.betas"] = "${actor.betas}"
    keys["++critic.epochs"] = "${actor.epochs}"
    keys["critic.avg_level"] = "token"  # as in every trainer: the mean over what it is trained on
    if newer:
        keys = key_names.to_newer(keys)
    keys |= settings or {}
    keys |= flatten(recipe.trainer.get("rl2", {}))
    return [override(key, value) for key, value in keys.items()]


def settings_of(run: RunDir, resume: bool = False) -> dict[str, Any]:
    """Overrides for what belongs to a run."""
    return {
        "actor.model_name": model_source(run.recipe),
        "trainer.save_dir": str(run.checkpoints.resolve()),
        "trainer.load_ckpt_from": "latest" if resume else None,
    }


def native_config(recipe: Recipe, settings: Mapping[str, Any]) -> Any:
    """RL2's own configuration, composed by hydra from the recipe and a run's ``settings``."""
    return compose_native(translate(recipe, settings=settings))


def native_owned(newer: bool) -> dict[str, str]:
    """Native keys that something else decides -> what decides them.

    They are the names of recipe keys (`NAMES`), `ADAPTER_OWNED`, and what follows one of these: in
    RL2's configuration a critic's ``${actor.scheduler}``, for one.

    Args:
        newer: in the newer API's names. What follows them in RL2's own configuration is included
            where that API is installed.
    """
    names = [*NAMES.items(), *OF_EVALUATIONS.items()]
    owned = {native: f"set {key} instead" for key, native in names}
    owned |= ADAPTER_OWNED
    from_actor: Sequence[str] = ("betas", "epochs")
    if newer:
        owned = {key_names.newer_name(native): reason for native, reason in owned.items()}
        owned |= key_names.OWNED
        from_actor = key_names.CRITIC
    owned = {native.lstrip("+"): reason for native, reason in owned.items()}
    configuration = native_keys() if newer == NEWER else {}
    references = {f"critic.{name}": f"${{actor.{name}}}" for name in from_actor}
    owned |= followers(owned, {**configuration, **references})
    return {native: reason for native, reason in owned.items() if native not in NATIVE_FREE}


def _refuse(recipe: Recipe, newer: bool) -> None:
    algorithm = recipe.algorithm
    hardware = recipe.hardware
    engines = ("default", "hf") if hardware.device == "cpu" else ("default", "sglang")
    checks = [
        (
            "algorithm.clip_high",
            algorithm.clip_low != algorithm.clip_high,
            "set algorithm.clip_low to the same",
        ),
        (
            "hardware.engine",
            hardware.engine not in engines,
            f"on this device: {engines}",
        ),
        (
            "limits.max_context_tokens",
            not recipe.limits.max_context_tokens,
            "it packs sequences by length and must know the longest; set it",
        ),
        (
            "batch.max_tokens_per_device limits.max_context_tokens",
            recipe.batch.max_tokens_per_device is not None
            and recipe.batch.max_tokens_per_device < (recipe.limits.max_context_tokens or 0),
            "the longest sequence must fit into one pass",
        ),
    ]
    refuse_keys(recipe, "RL2", REFUSED)
    refuse_values(recipe, "RL2", [*checks, *(_newer_checks(recipe) if newer else [])])
    refuse_native(recipe, "rl2", NATIVE_OWNED if newer == NEWER else native_owned(newer))
    if newer == NEWER:
        refuse_unknown(recipe, "rl2", native_keys())
    table = "rollout.train.sampling_params." if newer else f"{TRAIN}."
    given = map(bare, native_table(recipe, "rl2"))
    refuse_truncated_sampling(recipe, "rl2", [key for key in given if key.startswith(table)])


def _newer_checks(recipe: Recipe) -> list[tuple[str, object, str]]:
    """What the newer API lacks."""
    algorithm = recipe.algorithm
    hardware = recipe.hardware
    return [
        (
            "algorithm.epochs",
            algorithm.epochs > 1,
            "the newer API has one pass; set it to 1",
        ),
        (
            "algorithm.rollout_correction",
            algorithm.rollout_correction != "none",
            "the adapter corrects in 0.0.2 alone",
        ),
        (
            "train.save_minutes",
            recipe.train.save_minutes not in (0, TrainConfig().save_minutes),
            "the newer API saves by steps, and cannot resume; set it to 0",
        ),
        (
            "hardware.sequence_parallel",
            hardware.sequence_parallel > 1,
            "the adapter knows the key of 0.0.2 alone; leave it 1",
        ),
        (
            "hardware.tensor_parallel",
            hardware.tensor_parallel > 1,
            "the adapter repairs that of 0.0.2 alone; leave it 1",
        ),
    ]


NATIVE_OWNED = native_owned(NEWER)
"""Native keys of the installed API that something else decides -> what decides them."""
