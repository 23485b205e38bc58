"""Weights of tokens that correct for an engine whose probabilities are not the trainer's.

Source: truncated importance sampling, https://fengyao.notion.site/off-policy-rl.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import AlgorithmConfig, Recipe


def refuse_truncated_sampling(recipe: Recipe, trainer: str, native: Iterable[str] = ()) -> None:
    """Refuse a correction where engine and trainer have probabilities among different tokens.

    With top-k or top-p the engine reports log-probabilities of the renormalised part, and with
    ``sampling.support = "all"`` the trainer computes those of all tokens: their ratio is not 1 for
    equal weights, and the correction would bias the loss. Of native keys no trainer knows the part.

    Args:
        recipe: the recipe of the run.
        trainer: name of the trainer, and of its table, in lower case.
        native: dotted keys of ``[trainer.<trainer>]`` that change the probabilities as well.

    Raises:
        RecipeError: the recipe has both.
    """
    if recipe.algorithm.rollout_correction == "none":
        return
    sampling = recipe.sampling
    over_all = sampling.support == "all"
    changing = [
        *([f"sampling.top_p = {sampling.top_p}"] if sampling.top_p < 1 and over_all else []),
        *([f"sampling.top_k = {sampling.top_k}"] if sampling.top_k != -1 and over_all else []),
        *(f"trainer.{trainer}.{key}" for key in native),
    ]
    if changing:
        raise RecipeError(
            f"{changing[0]}: with algorithm.rollout_correction = "
            f"{recipe.algorithm.rollout_correction!r} the engine must sample from the tokens over "
            "which the trainer's log-probabilities are, all of them by default. Set "
            'sampling.support = "drawn" where the trainer takes it, or sampling.top_p = 1 and '
            "sampling.top_k = -1 (and no native sampling key), or "
            'algorithm.rollout_correction = "none".'
        )


def truncated_weights(algorithm: AlgorithmConfig, old: Any, rollout: Any, mask: Any) -> Any:
    """Return min(exp(old - rollout), ``algorithm.rollout_cap``) per token, and 1 off the mask.

    Args:
        algorithm: has the cap.
        old: log-probabilities by the trainer before the step's first update, [rows, tokens].
        rollout: those that the engine reported.
        mask: not 0 on action tokens.
    """
    difference = (old - rollout.to(old)).masked_fill(~mask.bool(), 0.0)
    return difference.exp().clamp(max=algorithm.rollout_cap)
