"""The first token at which two runs differ, with both sides of it, and how near the tie was."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gem_compare.lockstep.traces import Action, Trace, actions, same_tokens
from gem_core.episodes.data import Episode
from gem_core.episodes.request_seed import Split, request_seed


@dataclass(frozen=True)
class Divergence:
    """Where two runs differ.

    Attributes:
        split: whether a training or an evaluation episode differs first.
        step: training step, from 1.
        episodes: episodes of that step that differ.
        index: task of the first of them.
        seed: the seed of its environment.
        turn: its first turn that differs, from 0.
        position: the first token of the turn's action that differs; -1 where the prompts do,
            so that it was not the policy that made them differ.
        tokens: both token ids; ``None`` where a side has no token there.
        texts: both actions, decoded.
        observation: what both read before them.
        logprobs: log-probability of each side's own token under its own weights.
        gap: by how much the log-probabilities of the two runs must differ, at least, to explain
            that one noise gave different tokens; ``None`` where a log-probability is missing.
    """

    split: Split
    step: int
    episodes: int
    index: int
    seed: int | None
    turn: int
    position: int
    tokens: tuple[int | None, int | None]
    texts: tuple[str, str]
    observation: str
    logprobs: tuple[float | None, float | None]
    gap: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def first_divergence(one: Trace, other: Trace, split: Split) -> Divergence | None:
    """Return where two runs differ first; ``None`` if every token of every common step is equal."""
    mine = one.of(split)
    theirs = other.of(split)
    for step in sorted(mine.keys() & theirs.keys()):
        indices = sorted(mine[step].keys() | theirs[step].keys())
        differing = [k for k in indices if not _equal(mine[step].get(k), theirs[step].get(k))]
        if differing:
            first = differing[0]
            sides = (mine[step].get(first), theirs[step].get(first))
            return _divergence(split, step, len(differing), first, sides, one.seed)
    return None


def _equal(one: Episode | None, other: Episode | None) -> bool:
    return one is not None and other is not None and same_tokens(one, other)


def _divergence(
    split: Split,
    step: int,
    count: int,
    index: int,
    sides: tuple[Episode | None, Episode | None],
    run_seed: int,
) -> Divergence:
    seeds = [side.seed for side in sides if side is not None]
    own = [list(actions(side)) if side is not None else [] for side in sides]
    order = next(k for k in range(max(map(len, own)) + 1) if _differ(own, k))
    pair = (_at(own[0], order), _at(own[1], order))
    place = _position(*pair)
    tokens = (_token(pair[0], place), _token(pair[1], place))
    logprobs = (_logprob(pair[0], place), _logprob(pair[1], place))
    turn = next((action.turn for action in pair if action is not None), -1)
    gap = None
    if place >= 0:
        key = request_seed(run_seed, split, seeds[0], index, turn)
        gap = tie_gap(key, place, tokens, logprobs)
    texts = (_text(sides[0], turn), _text(sides[1], turn))
    observation = next((_observation(s, turn) for s in sides if s is not None), "")
    return Divergence(
        split, step, count, index, seeds[0], turn, place, tokens, texts, observation, logprobs, gap
    )


def tie_gap(
    key: int,
    position: int,
    tokens: tuple[int | None, int | None],
    logprobs: tuple[float | None, float | None],
) -> float | None:
    """Return how far apart two policies are at least that drew two tokens with one noise.

    With noise n, one policy drew a because log p(a) + n(a) was largest, the other b because
    log q(b) + n(b) was. If log p and log q differ by at most d at every token, the two sums differ
    by at most d.

    Args:
        key: seed of the request, which determines the noise.
        position: the place of the token in its completion.
        tokens: the two tokens.
        logprobs: log p(a) and log q(b).
    """
    if None in tokens or None in logprobs:
        return None
    from gem_core.policies.engine.philox import uniforms

    sums = []
    for token, logprob in zip(tokens, logprobs, strict=True):
        assert token is not None and logprob is not None
        uniform = uniforms([key], [position], token + 1)[0][token]
        sums.append(logprob - math.log(-math.log(uniform)))
    return abs(sums[0] - sums[1])


def _differ(own: list[list[Action]], order: int) -> bool:
    mine = _at(own[0], order)
    theirs = _at(own[1], order)
    if mine is None or theirs is None:
        return True
    return mine[:3] != theirs[:3]


def _at(own: list[Action], order: int) -> Action | None:
    return own[order] if order < len(own) else None


def _position(mine: Action | None, theirs: Action | None) -> int:
    """Return the first place at which two actions differ; -1 if their prompts do, or one lacks."""
    if mine is None or theirs is None or mine.prompt != theirs.prompt or mine.turn != theirs.turn:
        return -1
    pairs = zip(mine.tokens, theirs.tokens, strict=False)
    shorter = min(len(mine.tokens), len(theirs.tokens))
    return next((k for k, (a, b) in enumerate(pairs) if a != b), shorter)


def _token(action: Action | None, place: int) -> int | None:
    if action is None or not 0 <= place < len(action.tokens):
        return None
    return action.tokens[place]


def _logprob(action: Action | None, place: int) -> float | None:
    if action is None or action.logprobs is None or not 0 <= place < len(action.logprobs):
        return None
    return action.logprobs[place]


def _text(episode: Episode | None, turn: int) -> str:
    if episode is None or not 0 <= turn < len(episode.turns):
        return ""
    return episode.turns[turn].action


def _observation(episode: Episode, turn: int) -> str:
    return episode.turns[turn].observation if 0 <= turn < len(episode.turns) else ""
