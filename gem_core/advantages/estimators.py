"""The built-in estimators: reinforce, rebn, grpo, dr_grpo, rloo and gae.

All have the shape ``f(batch, *, gamma, lam, reduce, **options) -> float64 [N]``, are pure, and work
on turns: an action is the whole response of one turn. Sources: GEM, arXiv 2510.01051 (turn view,
ReBN); GRPO, arXiv 2402.03300; Dr. GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740; GAE,
arXiv 1506.02438.
"""

from __future__ import annotations

import numpy as np

from gem_core.advantages._arrays import BoolArray, FloatArray, IntArray
from gem_core.advantages.batch import TurnBatch, on_valid_turns
from gem_core.advantages.registry import register_estimator
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
from gem_core.errors import AdvantageError


@on_valid_turns
def discounted_returns(batch: TurnBatch, gamma: float) -> FloatArray:
    """Return G_t = r_t + gamma * G_{t+1} for each turn, float64 [N]; ``bootstrap`` is not read."""
    return _backward(batch.rewards, batch.ends, _unit("gamma", gamma))


@register_estimator("reinforce")
@on_valid_turns
def reinforce(
    batch: TurnBatch, *, gamma: float, lam: float = 1.0, reduce: Reduce = identity
) -> FloatArray:
    """REINFORCE: A_t = G_t, the discounted return. ``lam`` and ``reduce`` are not used."""
    return discounted_returns(batch, gamma)


@register_estimator("rebn")
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
    """Return batch normalisation: A_t = (G_t - mean) / (std + eps) over all turns of the batch.

    Args:
        batch: The turns of this rank; may be empty when other ranks have some.
        gamma: Discount per turn.
        lam: Not used.
        reduce: Sum over ranks. Called twice, three times with ``per_env``, also for no turns.
        per_env: Normalise each environment by itself instead of all in one pool.
        ddof: 0 for the population std, 1 for the unbiased one.
        eps: Added to the std.
        floor: A batch whose std is not above it is constant: all its advantages are exactly 0.
    """
    cell, cells = env_cells(batch, reduce) if per_env else (None, 1)
    returns = discounted_returns(batch, gamma)
    return normalise(returns, cell, cells, reduce=reduce, ddof=ddof, eps=eps, floor=floor)


@register_estimator("grpo")
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
    """GRPO over trajectories: A = (R - mean) / (std + eps) in the group, the same for each turn.

    R is the undiscounted sum of an episode's rewards, std is the population one. An episode alone
    in its group, and a group of equal returns, get 0. A group must lie whole on one rank.

    Args:
        batch: The turns, with ``group``.
        gamma: Not used.
        lam: Not used.
        reduce: Not used: gather whole groups first.
        std: Divide by the std; ``False`` is Dr. GRPO.
        eps: Added to the std.
        floor: A group whose std is not above it is constant.
    """
    of_turn, groups, deviation, m = _group_deviations(batch, "grpo", floor)
    if not std:
        return deviation[of_turn]
    scale = np.where(is_constant(m, floor), 1.0, m.std + eps)
    return (deviation / scale[groups])[of_turn]


@register_estimator("dr_grpo")
@on_valid_turns
def dr_grpo(
    batch: TurnBatch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    reduce: Reduce = identity,
    floor: float = FLOOR,
) -> FloatArray:
    """Dr. GRPO: A = R - mean in the group, `grpo` without the std (the rest as there)."""
    of_turn, _, deviation, _ = _group_deviations(batch, "dr_grpo", floor)
    return deviation[of_turn]


@register_estimator("rloo")
@on_valid_turns
def rloo(
    batch: TurnBatch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    reduce: Reduce = identity,
    floor: float = FLOOR,
) -> FloatArray:
    """RLOO: A_i = R_i - mean of the group's other episodes (the rest as in `grpo`)."""
    of_turn, groups, deviation, m = _group_deviations(batch, "rloo", floor)
    leave_one_out = m.n / np.maximum(m.n - 1.0, 1.0)
    return (deviation * leave_one_out[groups])[of_turn]


@register_estimator("gae")
@on_valid_turns
def gae(
    batch: TurnBatch,
    *,
    gamma: float,
    lam: float,
    reduce: Reduce = identity,
    whiten: bool = False,
) -> FloatArray:
    """GAE(lambda) over turns: A_t = delta_t + gamma * lam * A_{t+1}.

    delta_t = r_t + gamma * V(s_{t+1}) - V(s_t). After an episode's last turn V is ``bootstrap``:
    V(s_T) at a truncation, 0 at a true end.

    Args:
        batch: The turns, with ``values``.
        gamma: Discount per turn.
        lam: 0 is one-step TD, 1 is the return minus the value.
        reduce: Sum over ranks; called twice with ``whiten``, else never.
        whiten: Normalise the advantages over the batch as `rebn` does. The targets of the critic
            are made from advantages that are *not* whitened, see `value_targets`.

    Raises:
        AdvantageError: The batch has turns but no values.
    """
    if batch.values is None and len(batch):
        raise AdvantageError(
            "gae needs TurnBatch.values: V(s_t) at the last prompt token of each turn. "
            "Without a critic use 'rebn' or 'reinforce'."
        )
    gamma, lam = _unit("gamma", gamma), _unit("lam", lam)
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


def _backward(x: FloatArray, ends: BoolArray, decay: float) -> FloatArray:
    """Return y with y_t = x_t + decay * y_{t+1}, from the end of each episode back."""
    out = np.empty(x.shape[0])
    running = 0.0
    for i, (now, end) in enumerate(zip(x[::-1].tolist(), ends[::-1].tolist(), strict=True)):
        running = now if end else now + decay * running
        out[i] = running
    return out[::-1].copy()


def _group_deviations(
    batch: TurnBatch, name: str, floor: float
) -> tuple[IntArray, IntArray, FloatArray, Moments]:
    """Return, for the E episodes: episode of each turn [N], group [E], R - mean [E], moments."""
    if batch.group is None and len(batch):
        raise AdvantageError(
            f"{name} needs TurnBatch.group: without it each episode is alone in its group and all "
            "advantages are 0. Give the initial state of each episode, several episodes per state."
        )
    starts = batch.starts
    of_turn = np.cumsum(starts) - 1
    returns = sums_by(of_turn, batch.rewards, int(starts.sum()))
    _, groups = np.unique(batch.group_ids[starts], return_inverse=True)
    m = moments(returns, groups, int(groups.max(initial=-1)) + 1)
    deviation = np.where(is_constant(m, floor)[groups], 0.0, returns - m.mean[groups])
    return of_turn, groups, deviation, m


def _unit(name: str, number: float) -> float:
    if not 0.0 <= number <= 1.0:
        raise AdvantageError(f"{name} must be in [0, 1], got {number!r}.")
    return float(number)
