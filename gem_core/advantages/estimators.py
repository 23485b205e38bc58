"""The built-in estimators: reinforce, rebn, grpo, dr_grpo, rloo and gae.

All have the signature ``f(batch, *, gamma, lam, reduce, **options) -> float64 [N]``, are pure, and
work on turns: an action is the whole response of one turn. Sources: GEM, arXiv 2510.01051 (turn
view, ReBN); GRPO, arXiv 2402.03300; Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740; GAE, arXiv
1506.02438.
"""

from __future__ import annotations

import numpy as np

from gem_core.advantages._arrays import BoolArray, FloatArray, IntArray
from gem_core.advantages.batch import TurnBatch, on_valid_turns
from gem_core.advantages.registry import (
    EstimatorNeeds,
    check_needs,
    register_estimator,
    require_unit,
)
from gem_core.advantages.stats import (
    FLOOR,
    Moments,
    Reduce,
    env_cells,
    identity,
    is_constant,
    moments,
    normalise,
    sums_by,
)


@on_valid_turns
def discounted_returns(batch: TurnBatch, gamma: float) -> FloatArray:
    """Return G_t = r_t + gamma * G_{t+1} for each turn, float64 [N]; ``bootstrap`` is not read."""
    return _backward(batch.rewards, batch.ends, require_unit("gamma", gamma))


@register_estimator("reinforce", ignores=("lam",))
@on_valid_turns
def reinforce(
    batch: TurnBatch, *, gamma: float, lam: float = 1.0, reduce: Reduce = identity
) -> FloatArray:
    """Compute REINFORCE: A_t = G_t, the discounted return. ``lam`` and ``reduce`` are not used."""
    return discounted_returns(batch, gamma)


@register_estimator("rebn", ignores=("lam",))
@on_valid_turns
def rebn(
    batch: TurnBatch,
    *,
    gamma: float,
    lam: float = 1.0,
    reduce: Reduce = identity,
    per_env: bool = False,
    ddof: int = 0,
    eps: float = 0.0,
    floor: float = FLOOR,
) -> FloatArray:
    """Compute ReBN, return batch normalisation: A_t = (G_t - mean) / (std + eps) over all turns.

    Args:
        batch: the turns of this rank; it may be empty when other ranks have turns.
        gamma: discount per turn.
        lam: not used.
        reduce: the sum over ranks; called twice, or three times with ``per_env``, also without
            turns.
        per_env: normalise each environment by itself instead of all together.
        ddof: 0 for the population std, 1 for the unbiased one.
        eps: added to the std.
        floor: a batch whose std is at most this is constant: all its advantages are exactly 0.
    """
    cell, cells = env_cells(batch, reduce) if per_env else (None, 1)
    returns = discounted_returns(batch, gamma)
    return normalise(returns, cell, cells, reduce=reduce, ddof=ddof, eps=eps, floor=floor)


@register_estimator("grpo", needs_groups=True, ignores=("gamma", "lam"))
@on_valid_turns
def grpo(
    batch: TurnBatch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    reduce: Reduce = identity,
    std: bool = True,
    eps: float = 0.0,
    floor: float = FLOOR,
) -> FloatArray:
    """Compute GRPO over trajectories: A = (R - mean) / (std + eps) in the group, for each turn.

    R is the undiscounted sum of an episode's rewards, std the population standard deviation. An
    episode alone in its group, and a group of equal returns, get 0. A group must be complete on one
    rank.

    Args:
        batch: the turns, with ``group``.
        gamma: not used.
        lam: not used.
        reduce: not used; gather whole groups first.
        std: divide by the std; ``False`` is Dr. GRPO.
        eps: added to the std.
        floor: a group whose std is at most this is constant.
    """
    of_turn, groups, deviation, m = _group_deviations(batch, "grpo", floor)
    if not std:
        return deviation[of_turn]
    scale = np.where(is_constant(m, floor), 1.0, m.std + eps)
    return (deviation / scale[groups])[of_turn]


@register_estimator("dr_grpo", needs_groups=True, ignores=("gamma", "lam"))
@on_valid_turns
def dr_grpo(
    batch: TurnBatch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    reduce: Reduce = identity,
    floor: float = FLOOR,
) -> FloatArray:
    """Compute Dr. GRPO: A = R - mean in the group; otherwise as `grpo`."""
    of_turn, _, deviation, _ = _group_deviations(batch, "dr_grpo", floor)
    return deviation[of_turn]


@register_estimator("rloo", needs_groups=True, ignores=("gamma", "lam"))
@on_valid_turns
def rloo(
    batch: TurnBatch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    reduce: Reduce = identity,
    floor: float = FLOOR,
) -> FloatArray:
    """Compute RLOO: A_i = R_i - mean of the group's other episodes; otherwise as `grpo`."""
    of_turn, groups, deviation, m = _group_deviations(batch, "rloo", floor)
    leave_one_out = m.n / np.maximum(m.n - 1.0, 1.0)
    return (deviation * leave_one_out[groups])[of_turn]


@register_estimator("gae", needs_values=True)
@on_valid_turns
def gae(
    batch: TurnBatch,
    *,
    gamma: float,
    lam: float,
    reduce: Reduce = identity,
    whiten: bool = False,
) -> FloatArray:
    """Compute GAE(lambda) over turns: A_t = delta_t + gamma * lam * A_{t+1}.

    delta_t = r_t + gamma * V(s_{t+1}) - V(s_t). After an episode's last turn, V is ``bootstrap``:
    V(s_T) where the episode was truncated, 0 where it terminated.

    Args:
        batch: the turns, with ``values``.
        gamma: discount per turn.
        lam: 0 is one-step TD, 1 is the return minus the value.
        reduce: the sum over ranks; called twice with ``whiten``, otherwise never.
        whiten: normalise the advantages over the batch as `rebn` does. The critic's targets are
            computed from advantages that are *not* whitened, see `value_targets`.

    Raises:
        AdvantageError: the batch has turns but no values.
    """
    check_needs("gae", EstimatorNeeds(values=True), batch)
    gamma = require_unit("gamma", gamma)
    lam = require_unit("lam", lam)
    ends = batch.ends
    values = np.zeros(len(batch)) if batch.values is None else batch.values
    after = np.append(values[1:], 0.0)[: len(batch)]
    last = np.zeros(len(batch)) if batch.bootstrap is None else batch.bootstrap
    delta = batch.rewards + gamma * np.where(ends, last, after) - values
    advantages = _backward(delta, ends, gamma * lam)
    return normalise(advantages, reduce=reduce) if whiten else advantages


def value_targets(advantages: FloatArray, values: FloatArray) -> FloatArray:
    """Return the critic's targets A_t + V(s_t), from `gae` advantages that are not whitened."""
    return np.asarray(advantages, dtype=np.float64) + np.asarray(values, dtype=np.float64)


_FEW = 16
"""Below this number of episodes, a Python loop over their turns is faster than array operations."""
_PIECE = 2**16
"""Turns that `_backward` takes at a time: so many numbers stay in a processor's cache."""


def _backward(terms: FloatArray, ends: BoolArray, decay: float) -> FloatArray:
    """Return y with y_t = terms_t + decay * y_{t+1}, computed back from the end of each episode.

    Episodes are taken in pieces of whole ones. Each number is computed by the same two operations
    as in a loop over the turns, so the results are bit for bit the same.
    """
    after = np.flatnonzero(ends) + 1
    full = np.searchsorted(after, np.arange(_PIECE, terms.size, _PIECE))
    sums = terms.copy()
    first = 0
    for end in [*after[full].tolist(), terms.size]:
        if end > first:
            _backward_piece(sums[first:end], ends[first:end], decay)
        first = end
    return sums


def _backward_piece(sums: FloatArray, ends: BoolArray, decay: float) -> None:
    """Replace terms by their sums, as `_backward`.

    All episodes take one step back at a time. They are sorted by length, the longest first, so that
    those with turns left are the beginning of the array.
    """
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1)
    # numpy sorts short integers many times faster.
    short = lengths.astype(np.int16) if lengths.max(initial=0) < 2**15 else lengths
    order = np.argsort(-short, kind="stable")
    places = last[order]
    lengths = lengths[order]
    running = sums[places]
    counts = np.searchsorted(-lengths, -np.arange(1, lengths.max(initial=0)), side="left")
    for step, count in enumerate(counts.tolist(), start=1):  # episodes that have one more turn
        if count < _FEW:
            for place, length in zip(places[:count], lengths[:count], strict=True):
                _backward_one(sums, int(place - length + step), int(place), decay)
            break
        places = places[:count]
        running = running[:count]
        places -= 1
        running *= decay
        running += sums[places]
        sums[places] = running


def _backward_one(sums: FloatArray, first: int, end: int, decay: float) -> None:
    """Finish one episode in place: its turns ``first <= t < end``; ``sums[end]`` is there."""
    running = float(sums[end])
    backwards = []
    for term in sums[first:end][::-1].tolist():
        running = term + decay * running
        backwards.append(running)
    sums[first:end] = backwards[::-1]


def _group_deviations(
    batch: TurnBatch, name: str, floor: float
) -> tuple[IntArray, IntArray, FloatArray, Moments]:
    """Return the episode of each turn [N], the group and R - mean of each episode [E], moments."""
    check_needs(name, EstimatorNeeds(groups=True), batch)
    starts = batch.starts
    of_turn = np.cumsum(starts) - 1
    returns = sums_by(of_turn, batch.rewards, int(starts.sum()))
    _, groups = np.unique(batch.group_ids[starts], return_inverse=True)
    m = moments(returns, groups, int(groups.max(initial=-1)) + 1)
    deviation = np.where(is_constant(m, floor)[groups], 0.0, returns - m.mean[groups])
    return of_turn, groups, deviation, m
