"""gem_core.advantages in TRL: one advantage per turn, on each of the turn's tokens.

TRL's loss reads advantages of shape (sequences, completion tokens); its own, one per sequence, are
replaced. Every rank gathers all episodes, so statistics and groups are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from gem_core.adapters.estimate import estimate
from gem_core.adapters.turn_batch import turn_batch, turns_with_tokens, with_values
from gem_core.advantages import spread
from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe

_Item = TypeVar("_Item")


class StepBatch:
    """The episodes of one training step and the advantages made from them.

    Attributes:
        episodes: those of all ranks, in task order.
        mine: the slice of them that this rank trains on.
        advantages: per episode, float64 [turns].
        targets: the critic's, per episode of ``mine``, float64 [turns with tokens]; NaN where a
            turn is excluded, empty without a critic.
        metrics: ``advantage/*`` and what is not trained on.
        installed: sum of the absolute advantages given to TRL; None before `install`.
    """

    def __init__(
        self, recipe: Recipe, episodes: list[Episode], mine: slice,
        values: Sequence[np.ndarray] | None = None,
    ) -> None:  # fmt: skip
        self.episodes, self.mine = episodes, mine
        self.installed: float | None = None
        turns = turn_batch(episodes)
        if values is not None:
            turns = with_values(turns, episodes, values)
        found = estimate(turns, recipe.algorithm)
        ends = np.cumsum([len(e.turns) for e in episodes])
        self.advantages = np.split(found.advantages, ends[:-1])
        self.targets: list[np.ndarray] = []
        if found.targets is not None:
            wanted = np.split(np.where(turns.mask, found.targets, np.nan), ends[:-1])[mine]
            pairs = zip(wanted, episodes[mine], strict=True)
            self.targets = [per_turn[turns_with_tokens(episode)] for per_turn, episode in pairs]
        trained = sum(any(s.loss_mask) for e in episodes for s in e.segments)
        # TRL's mean over sequences counts rows without a trained token; ours does not.
        by_rows = recipe.algorithm.loss_aggregation != "token"
        self.row_scale = len(episodes) / max(1, trained) if by_rows else 1.0
        untrained = float(len(episodes) - trained)
        self.metrics = {**found.metrics, "episodes/untrained": untrained}

    def token_rows(self, width: int) -> np.ndarray:
        """This rank's advantages, float64 [rows, ``width`` completion tokens], 0 off actions."""
        rows = np.zeros((len(self.episodes[self.mine]), width))
        pairs = zip(self.episodes[self.mine], self.advantages[self.mine], strict=True)
        for row, (episode, per_turn) in zip(rows, pairs, strict=True):
            for segment in episode.segments:
                first = segment.prompt_length
                spans = [s for s in segment.spans if not episode.turns[s[0]].aborted]
                values = [per_turn[turn] for turn, _, _ in spans]
                row += spread(values, [(s - first, e - first) for _, s, e in spans], width)
        return rows


def pool(items: Sequence[_Item], world: int) -> list[_Item]:
    """The items of all ranks, in rank order; a collective call when ``world > 1``."""
    return list(gather_object(list(items))) if world > 1 else list(items)


def install(batch: StepBatch, output: dict[str, Any]) -> None:
    """Replace the advantages in what ``_generate_and_score_completions`` returned.

    Raises:
        GemError: TRL's loss mask is not the episodes' own.
    """
    mask = output["completion_mask"] * output["tool_mask"]
    expected = sum(sum(s.loss_mask) for e in batch.episodes[batch.mine] for s in e.segments)
    rows = batch.token_rows(mask.shape[1]) * batch.row_scale
    tensor = torch.as_tensor(rows, dtype=torch.float32, device=mask.device)
    if int(mask.sum()) != expected or bool((tensor * (1 - mask)).any()):
        raise GemError("TRL's loss mask is not the episodes' own; this TRL is not supported.")
    output["advantages"] = tensor
    batch.installed = float(tensor.double().abs().sum())


class AdvantageGuard(TrainerCallback):
    """Stops before an optimizer step on advantages that are not the recipe's."""

    trainer: Any = None

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Compare what the loss reads with what `install` gave; raises GemError."""
        batch = getattr(self.trainer, "step_batch", None)
        found = [part["advantages"] for part in self.trainer._buffered_inputs]
        total = sum(float(part.double().abs().sum()) for part in found)
        if batch is None or batch.installed is None or found[0].dim() != 2:
            raise GemError("TRL is about to train on its own advantages, not on gem-core's.")
        if not np.isclose(total, batch.installed, rtol=1e-6, atol=1e-9):
            raise GemError("TRL is about to train on other advantages than the estimator gave.")
