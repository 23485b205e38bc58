"""gem-core's advantage estimators as verl estimators ``gem_<name>``.

verl hands an estimator token rewards and masks, one row per sequence. A row is an episode whose
turns are the runs of ones in its mask. Where the history rewrites itself an episode has several
rows; then, and for groups and environments, each row's `RowLabel` (its verl ``uid``) says what it
is. All of it runs in the one process that holds the whole batch: no reduction over ranks is needed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from gem_core.adapters.estimate import estimate
from gem_core.adapters.token_rows import TokenRows, read_labels
from gem_core.advantages import discounted_returns, get_estimator, list_estimators
from gem_core.errors import GemError
from gem_core.training.recipe import AlgorithmConfig
from gem_verl._compat import PREFIX, hand_over_values

SUMMARY: dict[str, float] = {}
"""Metrics of the last batch in this process, for those of the step."""
_KL = "algorithm.use_kl_in_reward mixes a KL per token into the rewards of turns: use use_kl_loss."
_installed: dict[str, Any] = {}


def compute(
    name: str,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Any = None,
    values: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, ...]:
    """The advantage of every action token, and the returns, both like the rewards.

    Args:
        name: gem-core's estimator; the rest is verl's signature.
        token_level_rewards: [rows, tokens], rewards of turns on their action tokens.
        response_mask: [rows, tokens], 1 on action tokens; rows of zeros are padding.
        config: verl's ``algorithm`` (gamma, lam, gem_options).
        index: verl's uid per row.
        values: [rows, tokens], V before each token.
    """
    if config.get("use_kl_in_reward", False):
        raise GemError(_KL)
    labels = read_labels(range(len(response_mask)) if index is None else index)
    given = (token_level_rewards, response_mask, values)
    rows = TokenRows(labels, *(None if x is None else x.double().cpu().numpy() for x in given))
    gamma, options = config.gamma, dict(config.get("gem_options") or {})
    algorithm = AlgorithmConfig(estimator=name, options=options, gamma=gamma, lam=config.lam)
    found = estimate(rows.batch, algorithm)
    SUMMARY.update(found.metrics)
    returns = discounted_returns(rows.batch, gamma) if found.targets is None else found.targets
    spread = (torch.from_numpy(rows.spread(per_turn)) for per_turn in (found.advantages, returns))
    return tuple(tokens.to(token_level_rewards) for tokens in spread)


def install(*names: str) -> None:
    """Register ``names`` and all estimators that gem-core knows; repeating it is harmless."""
    for name in (*list_estimators(), *names):
        get_estimator(name)  # an unknown name is an error here
        register_adv_est(PREFIX + name)(_installed.setdefault(name, partial(compute, name)))


def require_installed(name: str, config: Any) -> None:
    """Raise GemError unless verl will run gem-core's ``name`` under ``config`` in this process."""
    install(name)
    hand_over_values()
    found = get_adv_estimator_fn(config.adv_estimator)
    if config.adv_estimator != PREFIX + name or found is not _installed[name]:
        raise GemError(
            f"verl would run the estimator {config.adv_estimator!r}, the recipe wants "
            f"{PREFIX + name!r}. Remove what overrides algorithm.adv_estimator."
        )
    if config.get("use_kl_in_reward", False):
        raise GemError(_KL)
