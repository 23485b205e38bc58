"""The picture of segments in ``docs/concepts.md``: an episode, played with several histories.

A word is a token here, so that a row fits into a picture; everything else is the core's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from picture_parts import BLUE, GREEN, GREY, box, svg, write

import gem_core
from gem_core.episodes.compact import Compact
from gem_core.episodes.context import Context, History, get_template
from gem_core.episodes.data import Completion, Segment
from gem_core.episodes.limits import Limits
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.policy import Request
from gem_core.episodes.rollout import play_batch

GAME = "game:GuessTheNumber-v0-easy"
SEED = 19
"""A task whose number is 7."""
GUESSES = (
    "I begin in the middle. \\boxed{5}",
    "Now between 6 and 10. \\boxed{8}",
    "It is 6 or 7. \\boxed{7}",
)
SUMMARY = "Higher than 5, lower than 8."
REQUEST = "Sum up what you know."
STOP = 0
HISTORIES: tuple[tuple[History, str], ...] = (
    ("append", "append"),
    ("last", "last"),
    ("window", "window = 1"),
    ("compact", "compact"),
)
"""Histories of `segments`, and how they are called there."""


def segments() -> str:
    """One episode as rows of tokens: one with ``append``, several with other histories."""
    parts, y = [], 10
    for history, shown in HISTORIES:
        rows = play(history)
        count = "1 segment" if len(rows) == 1 else f"{len(rows)} segments"
        parts += [write(10, y + 15, shown), write(10, y + 33, count, "#777777")]
        for runs in rows:
            parts += token_row(runs, y)
            y += 27
        y += 18 if len(rows) == 1 else 10
    told = (
        "a number = sampled in that turn, and trained on (mask 1): blue an action, green a summary"
    )
    parts += [write(110, y + 14, told), write(110, y + 34, "grey = read (mask 0)")]
    return svg(720, y + 46, parts)


def token_row(runs: Sequence[Run], y: float) -> list[str]:
    """Return the runs of a row, as wide as they have tokens, one beside the other."""
    parts, x = [], 110.0
    for run in runs:
        width = 4.2 * run.tokens
        colour = GREEN if run.summary else BLUE if run.turn else GREY
        parts.append(box(round(x, 1), y, round(width, 1), 22, colour, str(run.turn or "")))
        x += width
    return parts


class Run(NamedTuple):
    """Tokens of a row that follow each other and are all sampled in one turn, or all read.

    Attributes:
        tokens: how many.
        turn: 1-based number of the turn that is trained on them; 0: they are read.
        summary: whether that turn sums up.
    """

    tokens: int
    turn: int = 0
    summary: bool = False


class Words:
    """A `gem_core.episodes.tokenizers.Tokenizer`: a word with the space before it is a token."""

    stop_ids = frozenset({STOP})

    def __init__(self) -> None:
        self.words = [""]

    def encode(self, text: str) -> list[int]:
        """Return the ids of the words; a new one gets the next number."""
        found = re.findall(r"\s*\S+|\s+$", text)
        self.words += [word for word in dict.fromkeys(found) if word not in self.words]
        return [self.words.index(word) for word in found]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text."""
        return "".join(self.words[number] for number in token_ids)


class Guesses:
    """A batch policy that makes the `GUESSES` in their order, and sums up where it is asked to."""

    def __init__(self, tokenizer: Words) -> None:
        self.tokenizer = tokenizer
        self.guesses = iter(GUESSES)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer the request of the one episode."""
        (request,) = requests
        asked = REQUEST in self.tokenizer.decode(request.prompt_ids[-12:])
        words = self.tokenizer.encode(SUMMARY if asked else next(self.guesses))
        return [Completion([*words, STOP], [-1.0] * (len(words) + 1))]


def play(history: History) -> list[list[Run]]:
    """Play the episode with a history; return its segments as runs of tokens."""
    tokenizer = Words()
    context = Context(
        get_template("qwen3_general"),
        tokenizer,
        history,
        window=1 if history == "window" else None,
        compact=Compact(budget=110, prompt=REQUEST, max_tokens=8) if history == "compact" else None,
    )
    limits = Limits(max_tokens_per_turn=12)
    machine = EpisodeMachine(gem_core.make(GAME), context, limits, seed=SEED)
    (episode,) = play_batch([machine], Guesses(tokenizer))
    if not episode.success:
        raise SystemExit(f"The guesses do not find the number of seed {SEED}: choose another one.")
    summaries = {turn.index for turn in episode.turns if turn.kind == "summary"}
    return [runs(segment, summaries) for segment in episode.segments]


def runs(segment: Segment, summaries: set[int]) -> list[Run]:
    """Return the runs of a segment."""
    turns = [0] * len(segment.token_ids)
    for turn, start, end in segment.spans:
        turns[start:end] = [turn + 1] * (end - start)
    masked = [turn * mask for turn, mask in zip(turns, segment.loss_mask, strict=True)]
    return [Run(len([*tokens]), turn, turn - 1 in summaries) for turn, tokens in groupby(masked)]
