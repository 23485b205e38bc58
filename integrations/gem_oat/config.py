"""Recipe -> Oat's command line, and the command line as ``PPOArgs``.

`gem_oat.key_table` says which argument comes from which recipe key.
"""

from __future__ import annotations

from typing import Any

from gem_adapters.estimate import needs_critic
from gem_adapters.native_keys import check_staleness, refuse_keys, refuse_native, refuse_values
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.recipe import Recipe
from gem_oat import values
from gem_oat.key_table import TABLE
from gem_oat.native import argument_names

APPLIED = TABLE.applied
"""Keys that the adapter's actor, learner and launcher carry out; Oat's command line has none."""
REFUSED = TABLE.refused
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = TABLE.translated
"""Keys that become arguments of Oat."""
NATIVE_OWNED = TABLE.owned
"""Argument of Oat -> what decides it; refused in ``[trainer.oat]``."""
NATIVE_DEFAULTS = TABLE.defaults
"""Arguments that the adapter sets to better defaults, and that ``[trainer.oat]`` may set."""
FUSED = (
    "Oat's fused LM head gives the transformer body no gradient with 2 or more rows per forward "
    "pass; set batch.micro_batch = 1 or leave use_fused_lm_head off"
)
"""Why the fused head is refused, by `translate` and again before each update."""


def translate(recipe: Recipe) -> list[str]:
    """Oat's command line for ``recipe``; imports no Oat and needs no GPU.

    Raises:
        RecipeError: Oat cannot honour a key, or a native key is unknown or not free.
        MissingDependencyError: there are native keys, and no Oat to ask which ones it has.
    """
    refuse_keys(recipe, "Oat", REFUSED)
    refuse_native(recipe, "oat", NATIVE_OWNED)
    _refuse_unknown(recipe)
    _check_values(recipe)
    refuse_truncated_sampling(recipe, "oat")
    native = recipe.trainer.get("oat", {})
    words: list[str] = []
    for name, value in {**TABLE.settings(recipe), **native}.items():
        words += _argument(name, value)
    return words


def arguments(recipe: Recipe) -> Any:
    """``PPOArgs`` by Oat's own parser and validation; imports Oat.

    Raises:
        RecipeError: as `translate`, or ``[trainer.oat]`` has a value that Oat does not take.
    """
    import tyro
    from oat.algorithms.ppo import PPOArgs
    from oat.args import default_args_validation

    words = translate(recipe)
    try:
        args = tyro.cli(PPOArgs, args=words)
    except SystemExit:
        raise RecipeError(
            "trainer.oat: Oat's parser refuses a value; its message above names the argument."
        ) from None
    # Oat hands the name through to transformers; only its command line offers fewer.
    args.lr_scheduler = recipe.algorithm.schedule_name
    # Its parser takes one name for a list of names.
    args.target_modules = list(recipe.model.lora.targets) or "all-linear"
    return default_args_validation(args)


def _refuse_unknown(recipe: Recipe) -> None:
    """Refuse keys of ``[trainer.oat]`` that are no arguments of Oat."""
    for name in recipe.trainer.get("oat", {}):
        if name not in argument_names():
            hint = did_you_mean(name, argument_names() - NATIVE_OWNED.keys())
            raise RecipeError(f"trainer.oat.{name}: Oat has no such argument.{hint}")


def _argument(name: str, value: Any) -> list[str]:
    """One argument as words of a command line; true and false are flags."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    items = value if isinstance(value, (list, tuple)) else [value]
    return [f"--{name}", *map(str, items)]


def _check_values(recipe: Recipe) -> None:
    """Refuse values, or pairs of them, that Oat cannot honour."""
    algorithm = recipe.algorithm
    hardware = recipe.hardware
    native = recipe.trainer.get("oat", {})
    gpu = hardware.device == "gpu"
    real_vllm = "vllm" in values.real_parts()
    most = recipe.batch.max_tokens_per_device
    fused = native.get("use_fused_lm_head") and recipe.batch.micro_batch != 1
    drawn = recipe.sampling.support == "drawn"
    checks = [
        (
            "algorithm.clip_low algorithm.clip_high",
            algorithm.clip_low != algorithm.clip_high,
            "Oat has one clip range; make them equal",
        ),
        ("train.steps", not recipe.train.steps, "there is nothing to train"),
        (
            "hardware.engine hardware.device",
            hardware.engine not in ("default", "vllm" if gpu or real_vllm else "hf"),
            "Oat samples with vllm on a GPU, on a CPU with hf",
        ),
        (
            "hardware.device hardware.gpus_per_node",
            hardware.gpus > 1 and not gpu,
            "on a CPU there is one",
        ),
        (
            "batch.episodes batch.group_size hardware.gpus_per_node",
            recipe.groups_per_step % hardware.gpus,
            f"groups stay whole: episodes / group_size must be a multiple of {hardware.gpus} GPUs",
        ),
        ("batch.micro_batch", fused, FUSED),
        check_staleness(recipe),
        (
            "sampling.support hardware.device hardware.engine",
            drawn and (gpu or real_vllm),
            'vLLM 0.8\'s answer does not say which tokens could be drawn; use support = "all", or '
            'device = "cpu", where gem-core\'s engine does',
        ),
        (
            "sampling.support",
            drawn and native.get("use_fused_lm_head"),
            "Oat's fused LM head makes no logits to restrict; leave use_fused_lm_head off",
        ),
        (
            "batch.max_tokens_per_device limits.max_context_tokens",
            most and most < (recipe.limits.max_context_tokens or 0),
            "the longest sequence must fit into one forward pass",
        ),
    ]
    refuse_values(recipe, "Oat", [*checks, *_lora_checks(recipe)])


def _lora_checks(recipe: Recipe) -> list[tuple[str, object, str]]:
    """What Oat's adapters cannot do."""
    rank = recipe.model.lora.rank
    return [
        ("model.lora.alpha", rank and recipe.model.lora.alpha % 1, "Oat takes whole numbers"),
        (
            "model.lora.rank algorithm.estimator",
            rank and needs_critic(recipe),
            "the critic's value head would stay at zero, because only adapters are trained",
        ),
        (
            "model.lora.rank",
            rank and recipe.trainer.get("oat", {}).get("zero_stage") == 3,
            "merged weights are not gathered from ZeRO 3; leave zero_stage out",
        ),
    ]
