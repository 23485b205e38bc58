"""Put gem-core's advantages into TRL: one per turn, on each of the turn's tokens.

TRL's loss reads advantages of shape (sequences, completion tokens); its own, one per sequence, are
replaced. Every rank gathers all episodes, so statistics and groups are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from gem_adapters.estimate import estimate
from gem_adapters.turn_batch import turn_batch, turns_with_tokens, with_values
from gem_core.advantages import spread
from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe
from gem_trl.rows import one_row_each, segment_rows

if TYPE_CHECKING:
    from gem_trl._compat import GRPOTrainer

_Item = TypeVar("_Item")


class StepBatch:
    """The episodes of one training step and the advantages made from them.

    Args:
        recipe: the experiment.
        episodes: the episodes of all ranks, in task order.
        part: the slice of them that this rank trains on.
        values: the critic's, see `gem_adapters.turn_batch.with_values`; ``None`` without a
            critic.
        several_rows: whether an episode may have several rows.

    Attributes:
        episodes: the episodes of all ranks, in task order.
        mine: the episodes that this rank trains on.
        rows: their rows.
        row_count: rows of all ranks.
        advantages: per episode of ``mine``, float64 [turns].
        targets: the critic's, per episode of ``mine``, float64 [turns with tokens]; NaN where a
            turn is excluded, empty without a critic.
        row_scale: factor of the advantages that makes TRL's mean over rows one over the episodes
            that train.
        metrics: the estimator's.
        installed: sum of the absolute advantages that TRL was given; ``None`` before
            `replace_advantages`.

    Raises:
        AdvantageError: as `gem_adapters.estimate.estimate`.
    """

    def __init__(
        self,
        recipe: Recipe,
        episodes: list[Episode],
        part: slice,
        values: Sequence[np.ndarray] | None = None,
        *,
        several_rows: bool = False,
    ) -> None:
        rows_of_episodes = segment_rows if several_rows else one_row_each
        turns = turn_batch(episodes)
        if values is not None:
            turns = with_values(turns, episodes, values)
        result = estimate(turns, recipe.algorithm)
        self.episodes = episodes
        self.mine = episodes[part]
        self.rows = rows_of_episodes(self.mine)
        self.row_count = len(rows_of_episodes(episodes))
        self.advantages = _by_episode(result.advantages, episodes)[part]
        self.targets: list[np.ndarray] = []
        if result.targets is not None:
            targets = _by_episode(result.targets, episodes)[part]
            self.targets = [_critic_targets(*pair) for pair in zip(self.mine, targets, strict=True)]
        trained = sum(any(s.loss_mask) for e in episodes for s in e.segments)
        self.row_scale = 1.0
        if recipe.algorithm.loss_aggregation != "token" and not several_rows:
            # TRL's mean over sequences counts rows without a trained token; ours does not.
            self.row_scale = len(episodes) / max(1, trained)
        self.metrics = result.metrics
        self.installed: float | None = None

    def token_rows(self, count: int, width: int) -> np.ndarray:
        """Return this rank's advantages, float64 [rows, tokens], 0 off actions.

        Args:
            count: rows, of which those after ``rows`` have no advantage.
            width: tokens.
        """
        tokens = np.zeros((count, width))
        for place, row in enumerate(self.rows):
            segment = row.segment
            if segment is None:
                continue
            first = segment.prompt_length
            turns = self.mine[row.episode].turns
            spans = [span for span in segment.spans if not turns[span[0]].aborted]
            values = [self.advantages[row.episode][turn] for turn, _, _ in spans]
            tokens[place] = spread(values, [(s - first, e - first) for _, s, e in spans], width)
        return tokens


def _by_episode(per_turn: np.ndarray, episodes: Sequence[Episode]) -> list[np.ndarray]:
    ends = np.cumsum([len(episode.turns) for episode in episodes])
    return np.split(per_turn, ends[:-1])


def _critic_targets(episode: Episode, per_turn: np.ndarray) -> np.ndarray:
    excluded = [turn.aborted for turn in episode.turns]
    return np.where(excluded, np.nan, per_turn)[turns_with_tokens(episode)]


def pool(items: Sequence[_Item], world: int) -> list[_Item]:
    """Return the items of all ranks, in rank order; a collective call when ``world > 1``."""
    return list(gather_object(list(items))) if world > 1 else list(items)


def replace_advantages(batch: StepBatch, output: dict[str, Any]) -> None:
    """Put the batch's advantages in the place of TRL's.

    Args:
        batch: the step's episodes.
        output: what ``_generate_and_score_completions`` returned; changed in place.

    Raises:
        GemError: TRL's loss mask is not the episodes' own.
    """
    mask = output["completion_mask"] * output["tool_mask"]
    expected = sum(sum(s.loss_mask) for e in batch.mine for s in e.segments)
    rows = batch.token_rows(*mask.shape) * batch.row_scale
    advantages = torch.as_tensor(rows, dtype=torch.float32, device=mask.device)
    if int(mask.sum()) != expected or bool((advantages * (1 - mask)).any()):
        raise GemError(
            "TRL's loss mask is not the episodes' own: leave out what changes it in "
            "[trainer.trl], or install a TRL that was tested (`gem-core doctor --trainer trl`)."
        )
    output["advantages"] = advantages
    batch.installed = absolute_sum(advantages)


def require_installed(trainer: GRPOTrainer) -> None:
    """Check that TRL's loss is about to read the advantages that the recipe's estimator gave.

    Args:
        trainer: a trainer before an optimizer step.

    Raises:
        GemError: it would read others.
    """
    batch = trainer.step_batch
    buffered = [part["advantages"] for part in trainer._buffered_inputs]
    if batch is None or batch.installed is None or buffered[0].dim() != 2:
        raise GemError(
            "TRL is about to train on its own advantages, not on the estimator's: install a TRL "
            "that was tested (`gem-core doctor --trainer trl`)."
        )
    total = sum(absolute_sum(part) for part in buffered)
    if not np.isclose(total, batch.installed, rtol=1e-6, atol=1e-9):
        raise GemError(
            "TRL is about to train on other advantages than the estimator gave: remove what "
            "changes them after `GemTrainer._generate_and_score_completions`."
        )


def absolute_sum(advantages: torch.Tensor) -> float:
    """Return the sum of the absolute advantages, by which they are known again."""
    return float(advantages.double().abs().sum())


class AdvantageCheck(TrainerCallback):
    """Calls `require_installed` before every optimizer step.

    Attributes:
        trainer: set by `GemTrainer`.
    """

    trainer: GRPOTrainer

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Check them; see `require_installed`."""
        require_installed(self.trainer)
