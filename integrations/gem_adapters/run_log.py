"""Write training steps and the evaluations between them to a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gem_adapters.estimate import estimate
from gem_adapters.loss_checks import require_finite
from gem_adapters.turn_batch import turn_batch
from gem_adapters.versions import measure_staleness
from gem_core.advantages.registry import estimator_needs
from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics
from gem_core.episodes.rollout import require_healthy
from gem_core.runs.directory.run_dir import RunDir

if TYPE_CHECKING:
    from gem_core.runs.recipe.recipe import AlgorithmConfig

_CHECKED = ("advantage/mean", "advantage/std", "turns/masked", "episodes/untrained")
_AGREE = 1e-4
"""Trainers hand rewards over as float32."""


def log_step(
    run: RunDir,
    step: int,
    episodes: Sequence[Episode],
    metrics: Mapping[str, float],
    *,
    draft: bool = False,
) -> None:
    """Write the line of training step ``step`` and the first episodes of its batch.

    Args:
        run: the run directory.
        step: number of the step, from 1.
        episodes: the episodes of all ranks, in the order of their tasks.
        metrics: metrics of the trainer and the estimator, under the common names; they take
            precedence over those computed from the episodes.
        draft: the trainer saves this step before its last metrics are known. The episodes are
            written now, and the line is kept for a run that is killed before the call without it.

    Raises:
        GemError: a loss or the norm of the gradient is not finite, or a turn was sampled by other
            weights than it should be.
    """
    require_finite(step, metrics)
    recipe = run.recipe
    stale = measure_staleness(recipe, step, episodes)
    whole = {**episode_metrics(episodes), **stale, **metrics}
    drafted = run.read_draft()
    if drafted is None or drafted["step"] != step:
        logged = episodes[: recipe.train.log_episodes]
        advantages = turn_advantages(episodes, recipe.algorithm, whole) if logged else None
        run.log_episodes(step, logged, advantages=advantages)
    (run.draft if draft else run.log)(step, whole)


def turn_advantages(
    episodes: Sequence[Episode], algorithm: AlgorithmConfig, metrics: Mapping[str, float]
) -> list[list[float]] | None:
    """Return the advantage of every turn of every episode, estimated again from the episodes.

    Args:
        episodes: the whole batch of a step.
        algorithm: ``recipe.algorithm``.
        metrics: those of the step; what they say of the advantages and of episodes that were left
            out must agree with what is estimated here.

    Returns:
        ``None`` where they do not agree, or are not known: with a critic they depend on its values,
        which are not kept.
    """
    if estimator_needs(algorithm.estimator).values:
        return None
    estimated = estimate(turn_batch(episodes), algorithm)
    expected = {**episode_metrics(episodes), **estimated.metrics}
    if any(abs(metrics.get(k, np.inf) - expected[k]) > _AGREE for k in _CHECKED):
        return None
    ends = np.cumsum([len(episode.turns) for episode in episodes])[:-1]
    return [part.tolist() for part in np.split(estimated.advantages, ends)]


def log_evaluation(run: RunDir, step: int, episodes: Sequence[Episode]) -> None:
    """Write the evaluation after training step ``step``, and its first episodes.

    Raises:
        GemError: more than half of the episodes failed.
    """
    played = sorted(episodes, key=lambda episode: episode.index)
    require_healthy(played)
    run.log_eval(step, "during", episode_metrics(played))
    run.log_episodes(step, played[: run.recipe.train.log_episodes], split="eval")
