"""What is exported."""

from __future__ import annotations

from typing import NamedTuple

from gem_core.episodes.data import Episode


class ExportedEpisode(NamedTuple):
    """An episode and where it is from.

    Attributes:
        run: name of the run's folder.
        trainer: the run's trainer.
        step: the training step.
        split: ``train`` or ``eval``.
        episode: the episode.
        advantages: one per turn; ``None`` where the run stored none.
    """

    run: str
    trainer: str
    step: int
    split: str
    episode: Episode
    advantages: list[float] | None
