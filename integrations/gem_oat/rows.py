"""One row per turn: for trainers whose rows are a prompt and one response.

An episode becomes `turn_rows` (and, for a critic, a `state_rows`); `estimate_rows` finds their
advantages in any order, `loss_weights` makes a plain sum over their tokens the recipe's loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gem_core.adapters.estimate import Estimate, estimate
from gem_core.advantages import TurnBatch, dense_ids, identity
from gem_core.advantages._arrays import FloatArray
from gem_core.advantages.stats import Reduce
from gem_core.episodes.data import Episode, FinishReason, StopReason
from gem_core.episodes.machine import EpisodeMachine
from gem_core.errors import GemError
from gem_core.training.recipe import AlgorithmConfig


class Row(NamedTuple):
    """A turn: all tokens before its action, and the action. ``Row(-1)`` is padding.

    Attributes:
        episode: number of its episode in the batch, -1 in padding.
        turn: counts from 0 in the episode.
        segment: token sequence of the episode that the turn is in.
        group: of the episode.
        env: of the episode, numbered alike on all ranks.
        reward: of the turn.
        excluded: in no statistic and in no loss: padding, aborted turns, states.
        state: no turn, but what a truncated episode ended in; its value is the bootstrap.
        prompt: token ids before the action.
        response: token ids of the action; one legal id where there is none.
        logprobs: sampling log-probability of each of them.
        texts: what the environment showed and the action, for logs.
    """

    episode: int
    turn: int = 0
    segment: int = 0
    group: int = 0
    env: int = 0
    reward: float = 0.0
    excluded: bool = True
    state: bool = False
    prompt: Sequence[int] = (0,)
    response: Sequence[int] = (0,)
    logprobs: Sequence[float] = (0.0,)
    texts: tuple[str, str] = ("", "")


def turn_rows(episode: Episode, number: int, env: int) -> list[Row]:
    """One row per turn of a finished episode, in time order.

    Args:
        episode: a finished episode.
        number: identifies it in the batch.
        env: identifies its environment, alike on all ranks.

    Raises:
        GemError: a turn has no log-probabilities, or is masked in part.
    """
    rows = []
    for index, turn, start, end in episode.spans():
        segment, played = episode.segments[index], episode.turns[turn]
        if segment.logprobs is None:
            raise GemError("A row per turn needs the sampling log-probability of every token.")
        if any(bool(on) == played.aborted for on in segment.loss_mask[start:end]):
            raise GemError(f"Episode {number}, turn {turn}: rows mask whole turns, not tokens.")
        rows.append(
            Row(
                number,
                turn,
                index,
                episode.group,
                env,
                played.reward,
                played.aborted,
                prompt=segment.token_ids[:start],
                response=segment.token_ids[start:end],
                logprobs=segment.logprobs[start:end],
                texts=(played.observation, played.action),
            )
        )
    return rows


def state_rows(machine: EpisodeMachine, number: int, env: int) -> list[Row]:
    """The state after the last action of an episode that met its turn limit, for a critic.

    Empty for other ends, and where the state fits no context: nothing is bootstrapped there.
    ``number`` and ``env`` are those of `turn_rows`.
    """
    episode, tokenizer = machine.episode, machine.context.tokenizer
    if episode.stop_reason is not StopReason.TRUNCATED_TURNS or tokenizer is None:
        return []
    last, limit = episode.turns[-1], machine.limits.max_context_tokens
    closed = last.finish_reason is FinishReason.STOP
    text, fresh = machine.context.extend(last.action, closed, episode.final_observation, last.info)
    ids = ([] if fresh else episode.segments[-1].token_ids) + tokenizer.encode(text)
    if limit is not None and len(ids) >= limit:
        return []
    return [Row(number, len(episode.turns), 0, episode.group, env, state=True, prompt=ids)]


def estimate_rows(
    rows: Sequence[Row],
    algorithm: AlgorithmConfig,
    reduce: Reduce = identity,
    *,
    rewards: FloatArray | None = None,
    values: FloatArray | None = None,
) -> Estimate:
    """`gem_core.adapters.estimate` of the turns in ``rows``, over the turns of all ranks.

    Args:
        rows: the rows of this rank, in any order; episodes and groups are whole.
        algorithm: ``recipe.algorithm``.
        reduce: sum of a float64 array over ranks.
        rewards: [rows], instead of the rows' own rewards (KL in the reward).
        values: [rows], V at the last prompt token.

    Returns:
        Advantages and the critic's targets per row, 0 for those that are no turn.
    """
    turns = [n for n, row in enumerate(rows) if row.episode >= 0 and not row.state]
    turns.sort(key=lambda n: rows[n][:2])
    kept, critic = [rows[n] for n in turns], {}
    if values is not None:
        states = {row.episode: float(values[n]) for n, row in enumerate(rows) if row.state}
        bootstrap = np.array([states.get(row.episode, 0.0) for row in kept])
        critic = {"values": values[turns], "bootstrap": bootstrap}
    if rewards is None:
        rewards = np.array([row.reward for row in rows])
    batch = TurnBatch(
        rewards=rewards[turns],
        episode=np.array([row.episode for row in kept], dtype=np.int64),
        group=np.array([row.group for row in kept], dtype=np.int64),
        env=np.array([row.env for row in kept], dtype=np.int64),
        mask=np.array([not row.excluded for row in kept], dtype=bool),
        **critic,
    )
    found = estimate(batch, algorithm, reduce=reduce)
    place = np.zeros((2, len(rows)))
    place[0, turns] = found.advantages
    if found.targets is None:
        return found._replace(advantages=place[0])
    place[1, turns] = found.targets
    return found._replace(advantages=place[0], targets=place[1])


class LossWeights(NamedTuple):
    """What turns sums over the tokens of a minibatch's rows into means; float64 [rows] each.

    Attributes:
        policy: of the recipe's loss aggregation: sum of (weight * sum over the row's tokens).
        token: of the mean over all trained tokens.
        turn: of the mean over all trained turns, for what a turn has once.
    """

    policy: FloatArray
    token: FloatArray
    turn: FloatArray


def loss_weights(
    rows: Sequence[Row], algorithm: AlgorithmConfig, reduce: Reduce = identity
) -> LossWeights:
    """Weights of this rank's rows of one minibatch, in a sum over the rows of all ranks.

    Args:
        rows: with padding; the turns of a sequence that are here count as that sequence.
        algorithm: its ``loss_aggregation`` and ``loss_constant``.
        reduce: sum of a float64 array over ranks.
    """
    trained = np.array([float(not row.excluded) for row in rows])
    tokens = trained * [len(row.response) for row in rows]
    sequence = dense_ids([(row.episode, row.segment) for row in rows])
    lengths = np.bincount(sequence, tokens)
    own: Any = [tokens.sum(), np.count_nonzero(lengths), trained.sum()]
    count, sequences, turns = np.maximum(reduce(np.array(own, dtype=np.float64)), 1.0)
    divisor: dict[str, Any] = {
        "token": count,
        "sequence": np.maximum(lengths[sequence], 1.0) * sequences,
        "constant": (algorithm.loss_constant or 1) * sequences,
    }
    weight = trained / divisor[algorithm.loss_aggregation]
    return LossWeights(weight, trained / count, trained / turns)
