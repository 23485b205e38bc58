"""A run as lockstep compares it: every episode of every step, and the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from gem_core.episodes.data import Episode
from gem_core.episodes.request_seed import Split
from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import RunDir

Batches = Mapping[int, Mapping[int, Episode]]
"""Step -> task index -> episode."""


@dataclass(frozen=True)
class Trace:
    """One run.

    Attributes:
        trainer: name of the trainer.
        seed: seed of the recipe.
        batches: the training episodes by step (from 1) and task index.
        evaluations: the episodes of the evaluations inside training, likewise.
        metrics: the line of ``metrics.jsonl`` of each step.
    """

    trainer: str
    seed: int
    batches: Batches
    evaluations: Batches
    metrics: Mapping[int, Mapping[str, Any]]

    def of(self, split: Split) -> Batches:
        """Return the episodes of a split."""
        return self.batches if split == "train" else self.evaluations


class Action(NamedTuple):
    """One completion, and the prompt that it continues.

    Attributes:
        turn: 0-based number of the turn.
        prompt: token ids before it, in its segment.
        tokens: the sampled ids.
        logprobs: log-probability of each; ``None`` where the engine reported none.
    """

    turn: int
    prompt: list[int]
    tokens: list[int]
    logprobs: list[float] | None


def read_trace(run: RunDir) -> Trace:
    """Read a run whose recipe has the overrides of `gem_compare.lockstep.recipe`.

    Raises:
        RunError: a step lacks episodes, so that "equal" would not mean the whole batch.
    """
    episodes: dict[str, dict[int, dict[int, Episode]]] = {"train": {}, "eval": {}}
    for tags, episode in run.episodes():
        episodes[tags["split"]].setdefault(tags["step"], {})[episode.index] = episode
    recipe = run.recipe
    for step in range(1, recipe.train.steps + 1):
        count = len(episodes["train"].get(step, ()))
        if count != recipe.batch.episodes:
            raise RunError(
                f"{run.path}: step {step} has {count} of {recipe.batch.episodes} episodes in its "
                "log. Run it with train.log_episodes of at least batch.episodes."
            )
    metrics = {row["step"]: row for row in run.metrics()}
    trainer = run.info["trainer"]
    return Trace(trainer, recipe.seed, episodes["train"], episodes["eval"], metrics)


def actions(episode: Episode) -> Iterator[Action]:
    """Yield the completions of an episode, in time order."""
    for number, turn, start, end in episode.spans():
        segment = episode.segments[number]
        logprobs = None if segment.logprobs is None else segment.logprobs[start:end]
        ids = segment.token_ids
        yield Action(turn, ids[:start], ids[start:end], logprobs)


def same_tokens(one: Episode, other: Episode) -> bool:
    """Return whether two episodes have the same prompts and actions, token for token."""
    return _tokens(one) == _tokens(other)


def digest(batch: Mapping[int, Episode]) -> str:
    """Return a short digest of all prompts and actions of a batch."""
    text = repr([(index, _tokens(batch[index])) for index in sorted(batch)])
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _tokens(episode: Episode) -> list[tuple[int, list[int], list[int]]]:
    return [(action.turn, action.prompt, action.tokens) for action in actions(episode)]
