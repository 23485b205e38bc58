"""gem_core.advantages in the place of RL2's ``compute_advantages``.

RL2 computes advantages on rank 0, for the whole batch: statistics are over all turns of all ranks
without a reduction.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gem_adapters.estimate import estimate
from gem_adapters.token_rows import RowLabel, TokenRows
from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe


class Advantages:
    """Callable with the signature of RL2's ``compute_advantages``; writes into its tensors.

    RL2 keeps no turn ids, but between two actions of a row there is an observation: turns are the
    runs of ones in its action mask, checked against the episodes that were played.

    Args:
        recipe: estimator, its options, gamma and lambda.
        episodes: those in the tensors; set it before each call. None: not known.

    Attributes:
        in_order: the episodes have the tensors' order, so that environments can be told apart.
        metrics: of the last batch, see `gem_adapters.estimate.Estimate`.
    """

    in_order = True

    def __init__(self, recipe: Recipe, episodes: Sequence[Episode] | None = None) -> None:
        self.recipe = recipe
        self.episodes = episodes
        self.metrics: dict[str, float] = {}

    def __call__(self, config: Any, tensors: dict[str, Any], cu_seqs: Any, step: int) -> None:
        """Add ``advantages`` (and the critic's ``returns`` and ``value_mask``) to ``tensors``.

        Args:
            config: RL2's; not read.
            tensors: [rows, tokens] each, where position ``p`` predicts token ``p + 1``.
            cu_seqs: [episodes + 1], first row of each episode.
            step: RL2's; not read.

        Raises:
            GemError: the tensors do not show the turns that were played.
        """
        labels = self._labels(cu_seqs)
        mask = tensors["action_mask"]
        values = _values(tensors)
        rows = TokenRows(
            labels,
            tensors["rewards"].double().numpy(),  # with a KL penalty, where the recipe has one
            mask.numpy(),
            values=None if values is None else values.double().numpy(),
            bootstraps=None if values is None else _bootstraps(tensors, values, labels),
        )
        self._check(len(rows.batch))
        batch = rows.batch if self._knows_environments else replace(rows.batch, env=None)
        result = estimate(batch, self.recipe.algorithm)
        self.metrics = result.metrics
        tensors["advantages"] = _spread(rows, result.advantages)
        if result.targets is not None:
            tensors["returns"] = _spread(rows, result.targets)
            # The critic is read, and so trained, at the last prompt token of each turn alone.
            tensors["value_mask"] = _first_of_turns(mask)
        trained = mask.any(dim=1)  # the rows of final states have served
        tensors.update({key: tensor[trained] for key, tensor in tensors.items()})

    @property
    def _knows_environments(self) -> bool:
        return self.in_order and self.episodes is not None

    def _labels(self, cu_seqs: Any) -> list[RowLabel]:
        """What each row is; rows of one episode are numbered in RL2's order, which is time's."""
        owners = np.repeat(np.arange(len(cu_seqs) - 1), np.diff(cu_seqs)).tolist()
        environments = self._environments()
        return [
            RowLabel(
                episode=owner,
                turn=row,
                group=owner // self.recipe.batch.group_size,
                env=environments[owner] if environments else 0,
            )
            for row, owner in enumerate(owners)
        ]

    def _environments(self) -> list[int]:
        """The environment of each episode, numbered by id; empty where it is not known."""
        if self.episodes is None or not self._knows_environments:
            return []
        ids = sorted({episode.env_id for episode in self.episodes})
        return [ids.index(episode.env_id) for episode in self.episodes]

    def _check(self, in_tensors: int) -> None:
        """Compare the number of turns: a sequence may be missing, or two turns may look as one."""
        if self.episodes is None:
            return
        turns = [turn for episode in self.episodes for turn in episode.turns]
        played = sum(not turn.aborted for turn in turns)
        if in_tensors != played:
            raise GemError(
                f"{played} turns were played, RL2's tensors show {in_tensors}: a sequence is "
                "missing, or two actions have no token between them. Use a template with text "
                "around observations."
            )


def _values(tensors: dict[str, Any]) -> Any:
    """The critic's values [rows, tokens], None where there is no critic.

    RL2's layout is shifted by one: the index of a turn's first action token is that of its last
    prompt token, where the critic has read the whole state.
    """
    newer = tensors.get("old_values")
    return tensors.get("values") if newer is None else newer


def _bootstraps(
    tensors: dict[str, Any], values: Any, labels: Sequence[RowLabel]
) -> dict[int, float]:
    """V(s_T) by episode: a row without actions is the state in which its episode was cut off."""
    ends = tensors["eos_mask"].argmax(-1, keepdim=True)
    at_end = values.gather(1, ends)[:, 0].tolist()
    without_actions = tensors["action_mask"].sum(-1) == 0
    finals = without_actions.nonzero()[:, 0].tolist()
    return {labels[row].episode: at_end[row] for row in finals}


def _spread(rows: TokenRows, per_turn: npt.NDArray[np.float64]) -> Any:
    return torch.from_numpy(rows.spread(per_turn)).float()


def _first_of_turns(mask: Any) -> Any:
    """1 where a run of ones of ``mask`` [rows, tokens] begins, in its dtype."""
    before = torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return (mask.bool() & ~before.bool()).to(mask)


def require_installed(train: Any, advantages: Advantages) -> None:
    """Raise GemError unless the training loop ``train`` would call ``advantages``."""
    if inspect.unwrap(train).__globals__.get("compute_advantages") is not advantages:
        raise GemError(
            "RL2's training loop would use its own advantages, not the recipe's estimator: "
            "RL2.trainer.ppo.compute_advantages was replaced. Train through gem_rl2.launch."
        )
