"""gem-core's advantage estimators as verl estimators ``gem_<name>``.

verl hands an estimator token rewards and masks, one row per sequence. A row is an episode whose
turns are the runs of ones in its mask. Where the history rewrites itself an episode has several
rows; then, and for groups and environments, each row's `Label` (its verl ``uid``) says what it is.
All of it runs in the one process that holds the whole batch, so no reduction over ranks is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    describe,
    discounted_returns,
    gae,
    get_estimator,
    list_estimators,
    spread_rows,
    value_targets,
)
from gem_core.errors import GemError
from gem_verl._compat import hand_over_values

PREFIX = "gem_"
SUMMARY: dict[str, float] = {}
"""``advantage/*`` of the last batch in this process, for the metrics of the step."""
_KL = "algorithm.use_kl_in_reward mixes a KL per token into the rewards of turns: use use_kl_loss."
_installed: dict[str, Estimator] = {}


class Label(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What a row is: its episode, its first turn, its group, the position of its environment."""

    episode: int
    turn: int
    group: int
    env: int

    def encode(self) -> str:
        """As verl's ``uid``."""
        return "gem" + msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, uids: Sequence[Any] | None, row: int) -> Label:
        """Label of ``row``. A row without ours is an episode, and equal uids are a group."""
        names = [str(row)] * (row + 1) if uids is None else [str(uid) for uid in uids]
        if names[row].startswith("gem["):
            return msgspec.json.decode(names[row][3:], type=cls)
        return cls(row, 0, row if uids is None else names.index(names[row]), 0)


class Estimator:
    """One estimator of gem-core with verl's signature."""

    def __init__(self, name: str) -> None:
        self.name, self.function = name, get_estimator(name)

    def __call__(
        self,
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        config: Any = None,
        index: Any = None,
        values: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the advantage of every action token, and the returns, both like the rewards.

        Args:
            token_level_rewards: [rows, tokens], rewards of turns on their action tokens.
            response_mask: [rows, tokens], 1 on action tokens; rows of zeros are padding.
            config: verl's ``algorithm`` (gamma, lam, gem_options).
            index: verl's uid per row.
            values: [rows, tokens], V before each token.
        """
        if config.get("use_kl_in_reward", False):
            raise GemError(_KL)
        mask = response_mask.cpu().numpy() != 0
        labels = [Label.decode(index, row) for row in range(len(mask))]
        rows = sorted(np.flatnonzero(mask.any(axis=1)).tolist(), key=labels.__getitem__)
        batch, spans = TurnBatch.from_token_rows(
            token_level_rewards[rows].double().cpu().numpy(),
            mask[rows],
            groups=[labels[row].group for row in rows],
            envs=[labels[row].env for row in rows],
            values=None if values is None else values[rows].double().cpu().numpy(),
        )
        episodes = np.array([labels[row].episode for row in rows], dtype=np.int64)
        batch = replace(batch, episode=episodes[batch.episode])
        gamma, lam, options = config.gamma, config.lam, dict(config.get("gem_options") or {})
        advantages = compute_advantages(self.name, batch, gamma=gamma, lam=lam, **options)
        if batch.values is None:
            returns = discounted_returns(batch, gamma)
        else:
            returns = value_targets(gae(batch, gamma=gamma, lam=lam), batch.values)
        SUMMARY.update({f"advantage/{k}": v for k, v in describe(batch, advantages).items()})
        found = torch.zeros(2, *token_level_rewards.shape).to(token_level_rewards)
        for out, per_turn in zip(found, (advantages, returns), strict=True):
            out[rows] = torch.from_numpy(spread_rows(per_turn, spans, out.shape[1])).to(out)
        return found[0], found[1]


def install(*names: str) -> None:
    """Register ``names`` and all estimators that gem-core knows; repeating it is harmless."""
    for name in (*list_estimators(), *names):
        estimator = _installed.setdefault(name, Estimator(name))
        register_adv_est(PREFIX + name)(estimator)


def require_installed(name: str, config: Any) -> None:
    """Raise GemError unless verl will run gem-core's ``name`` under ``config`` in this process."""
    install(name)
    hand_over_values(PREFIX, _estimate)
    found = get_adv_estimator_fn(config.adv_estimator)
    if config.adv_estimator != PREFIX + name or found is not _installed[name]:
        raise GemError(
            f"verl would run the estimator {config.adv_estimator!r}, the recipe wants "
            f"{PREFIX + name!r}. Remove what overrides algorithm.adv_estimator."
        )
    if config.get("use_kl_in_reward", False):
        raise GemError(_KL)


def _estimate(data: Any, name: str, config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    keys = ("token_level_rewards", "response_mask", "values")
    tensors = {key: data.batch[key] for key in keys}
    return get_adv_estimator_fn(name)(config=config, index=data.non_tensor_batch["uid"], **tensors)
