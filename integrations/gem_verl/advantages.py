"""gem-core's advantage estimators as verl estimators ``gem_<name>``.

verl hands an estimator token rewards and masks, one row per sequence. A row is an episode whose
turns are the runs of ones in its mask. Where the history rewrites itself an episode has several
rows; then, and for groups and environments, each row's `RowLabel` says what it is, which
`gem_verl.sampler` writes as verl's ``uid``. All of it runs in the one process that holds the whole
batch: no reduction over ranks is needed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from gem_adapters.estimate import estimate
from gem_adapters.token_rows import TokenRows, final_values, read_labels
from gem_core.advantages import discounted_returns, get_estimator, list_estimators
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_verl._compat import hand_over_values
from gem_verl.values import PREFIX

SUMMARY: dict[str, float] = {}
"""The estimator's metrics of the last batch in this process, for those of the step."""
_installed: dict[str, Any] = {}
"""Estimator name -> the function that verl got for it, the same at each registration."""


def compute(
    name: str,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Any = None,
    values: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the advantage of every action token.

    Args:
        name: gem-core's estimator; the rest is verl's signature.
        token_level_rewards: float [rows, tokens], rewards of turns on their action tokens.
        response_mask: [rows, tokens], 1 on action tokens; rows of zeros are padding.
        config: verl's ``algorithm`` (gamma, lam, gem_options).
        index: verl's uid per row.
        values: float [rows, tokens], V before each token; None without a critic.

    Returns:
        Advantages and returns (with a critic: its targets), both [rows, tokens] in the type of the
        rewards, 0 on all other tokens.

    Raises:
        GemError: verl mixed a KL term into the rewards, or the estimator cannot be computed.
    """
    _refuse_kl_in_reward(config)
    labels = read_labels(range(len(response_mask)) if index is None else index)
    mask = _float64(response_mask)
    read = None if values is None else _float64(values)
    final = None if read is None else final_values(labels, mask, read)
    rows = TokenRows(labels, _float64(token_level_rewards), mask, read, final)
    algorithm = AlgorithmConfig(
        estimator=name,
        options=dict(config.get("gem_options") or {}),
        gamma=config.gamma,
        lam=config.lam,
    )
    result = estimate(rows.batch, algorithm)
    SUMMARY.update(result.metrics)
    returns = result.targets
    if returns is None:
        returns = discounted_returns(rows.batch, algorithm.gamma)
    advantage_tokens = torch.from_numpy(rows.spread(result.advantages))
    return_tokens = torch.from_numpy(rows.spread(returns))
    return advantage_tokens.to(token_level_rewards), return_tokens.to(token_level_rewards)


def install(*names: str) -> None:
    """Register ``names`` and all estimators that gem-core knows; repeating it is harmless.

    Raises:
        UnknownNameError: there is no such estimator.
    """
    for name in (*list_estimators(), *names):
        get_estimator(name)  # an unknown name is an error here
        estimator = _installed.setdefault(name, partial(compute, name))
        register_adv_est(PREFIX + name)(estimator)


def require_installed(name: str, config: Any) -> None:
    """Raise unless verl will run gem-core's estimator in this process.

    Args:
        name: the recipe's estimator.
        config: verl's ``algorithm``.

    Raises:
        GemError: verl would run another estimator, or mix a KL term into the rewards.
        MissingDependencyError: verl's inside is not what it was.
    """
    install(name)
    hand_over_values()
    registered = get_adv_estimator_fn(config.adv_estimator)
    if config.adv_estimator != PREFIX + name or registered is not _installed[name]:
        raise GemError(
            f"verl would run the estimator {config.adv_estimator!r}, the recipe wants "
            f"{PREFIX + name!r}. Remove what overrides algorithm.adv_estimator."
        )
    _refuse_kl_in_reward(config)


def _refuse_kl_in_reward(config: Any) -> None:
    if config.get("use_kl_in_reward", False):
        raise GemError(
            "algorithm.use_kl_in_reward mixes a KL per token into the rewards of turns: use "
            "use_kl_loss."
        )


def _float64(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()
