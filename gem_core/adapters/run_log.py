"""Write training steps and the evaluations between them to a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gem_core.adapters.loss_checks import require_finite
from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics
from gem_core.training.runs import RunDir


def log_step(
    run: RunDir, step: int, episodes: Sequence[Episode], metrics: Mapping[str, float]
) -> None:
    """Write the line of training step ``step`` and the first episodes of its batch.

    Args:
        run: the run directory.
        step: number of the step, from 1.
        episodes: the episodes of all ranks, in the order of their tasks.
        metrics: metrics of the trainer and the estimator, under the common names; they take
            precedence over those computed from the episodes.

    Raises:
        GemError: a loss or the norm of the gradient is not finite.
    """
    require_finite(step, metrics)
    run.log(step, {**episode_metrics(episodes), **metrics})
    run.log_episodes(step, episodes[: run.recipe.train.log_episodes])


def log_evaluation(run: RunDir, step: int, episodes: Sequence[Episode]) -> None:
    """Write the evaluation after training step ``step``, and its first episodes."""
    played = sorted(episodes, key=lambda episode: episode.index)
    run.log_eval(step, "during", episode_metrics(played))
    run.log_episodes(step, played[: run.recipe.train.log_episodes], split="eval")
