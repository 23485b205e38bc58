"""What the estimators' gradients are on average, in closed form.

Notation: an episode has T turns, ``psi = sum_t score_t``, R is its return, G_t the return from turn
t (gamma = 1). For any number f of an episode, ``E[f psi] = grad E[f]`` (f itself held fixed). A
batch has B episodes, a group n. Gradients are those of ``(1/B) sum_i sum_t A_it score_it``.

REINFORCE, RLOO
    The expectation is grad J.
Mean of the batch, A = G - mean of G over the batch's turns
    A constant baseline mu = E[sum_t G_t] / E[T] is unbiased, however T depends on the actions, but
    the mean of a batch contains the turn's own episode. To first order in 1/B it differs from mu by
    ``sum_i (S_i - mu T_i) / (B E[T])``, ``S = sum_t G_t``, so that the bias is
    ``-(E[S psi] - mu E[T psi]) / (B E[T]) = -(1/B) grad mu``: minus the gradient of the mean return
    per turn, one B-th of it.
ReBN, A = (G - mean) / std over the batch's turns
    Tends to grad J / sigma, with sigma the deviation of G over turns. To first order in 1/B, and
    up to a multiple of grad J,
    ``(1/sigma) (grad J - (1/B) (grad mu + E[(Q - sigma^2 T) u] / (2 sigma^2 E[T])))`` with
    ``u = sum_t (G_t - mu) score_t`` and ``Q = sum_t (G_t - mu)^2``.
Dr. GRPO, A = R - mean of the group
    ``E[mean R * psi_i] = E[R_i psi_i] / n``: exactly (1 - 1/n) grad J. No bias of direction.
GRPO, A = (R - mean) / std of the group
    Tends, for large groups, to ``sum over tasks of w_k grad J_k / sigma_k``: another direction
    where tasks differ in the deviation of their returns.
Rewards centred at each turn index (verl's issue 7244), A_t = sum over s >= t of (r_s - m_s), with
m_s the mean reward of turn s over the group's episodes that have one
    Tends to ``grad J - sum_s m_s grad P(T >= s)``. As ``J = sum_s P(T >= s) m_s``, this is
    ``sum_s P(T >= s) grad m_s``: what is got in a turn is learned, and whether to take the turn is
    not. Each further turn seems to cost its mean reward: the bias that the issue reports.
Mean over the turns of an episode before the mean over episodes (``loss_aggregation = "sequence"``)
    An advantage f of the whole episode gives ``E[f psi / T] = grad E[f / T]``: the return per turn.
"""

from __future__ import annotations

import numpy as np
from exact import Trajectories, expected_sum, gradient, gradient_of
from processes import FloatArray


def mean_return_per_turn(t: Trajectories) -> tuple[float, FloatArray]:
    """Return mu = E[sum_t G_t] / E[T], and its gradient."""
    total, length = t.total(t.returns()), t.length.astype(np.float64)
    turns = float(t.mean(length))
    mu = float(t.mean(total)) / turns
    return mu, (gradient_of(t, total) - mu * gradient_of(t, length)) / turns


def batch_mean_bias(t: Trajectories) -> FloatArray:
    """Return B times the bias, to first order, of G minus its mean over the batch's turns."""
    return -mean_return_per_turn(t)[1]


def rebn(t: Trajectories, episodes: int | None = None) -> FloatArray:
    """Return the expectation of ReBN's gradient up to a multiple of its limit.

    Args:
        t: all trajectories.
        episodes: B, to first order in 1/B; None is the limit, grad J / sigma.
    """
    mu, slope = mean_return_per_turn(t)
    deviation = t.returns() - mu
    turns = float(t.mean(t.length.astype(np.float64)))
    squares = t.total(deviation**2)
    variance = float(t.mean(squares)) / turns
    limit = gradient(t) / variance**0.5
    if episodes is None:
        return limit
    own = t.total(deviation[:, None] * t.score)
    spread = t.mean((squares - variance * t.length)[:, None] * own) / (2 * variance * turns)
    return limit - (slope + spread) / (episodes * variance**0.5)


def dr_grpo(t: Trajectories, group_size: int) -> FloatArray:
    """Return the expectation of Dr. GRPO's gradient, exactly."""
    return (1.0 - 1.0 / group_size) * gradient(t)


def grpo(t: Trajectories) -> FloatArray:
    """Return the limit of GRPO's gradient for large groups."""
    total = t.total(t.reward)
    advantage = np.zeros_like(total)
    for task in np.unique(t.task):
        own = t.task == task
        weight = t.probability[own] / t.probability[own].sum()
        mean = weight @ total[own]
        advantage[own] = (total[own] - mean) / np.sqrt(weight @ (total[own] - mean) ** 2)
    return gradient_of(t, advantage)


def turn_index(t: Trajectories) -> FloatArray:
    """Return the limit of rewards centred at each turn index: grad J - sum m_s grad P(T >= s)."""
    result = gradient(t)
    for mean, slope in _turns(t):
        result = result - mean * slope
    return result


def turn_index_by_means(t: Trajectories) -> FloatArray:
    """Return the same limit the other way, sum_s P(T >= s) grad m_s."""
    result = np.zeros(t.score.shape[1])
    for place in range(int(t.length.max())):
        has = (t.length > place).astype(np.float64)
        reward = _reward_at(t, place)
        chance = float(t.mean(has))
        mean = float(t.mean(reward)) / chance
        result += gradient_of(t, reward) - mean * gradient_of(t, has)
    return result


def sequence_mean(t: Trajectories, aggregated: FloatArray) -> FloatArray:
    """Return the expectation where an episode's advantage is divided by its turns: grad E[f / T].

    Args:
        t: all trajectories.
        aggregated: f, the advantage of each trajectory [M].
    """
    return gradient_of(t, aggregated / t.length)


def discounted(t: Trajectories, gamma: float) -> FloatArray:
    """Return the expectation of REINFORCE with a discount, sum_t G_t(gamma) score_t."""
    return expected_sum(t, t.returns(gamma))


def _turns(t: Trajectories) -> list[tuple[float, FloatArray]]:
    """Return the mean reward m_s of each turn index, and the gradient of P(T >= s)."""
    found = []
    for place in range(int(t.length.max())):
        has = (t.length > place).astype(np.float64)
        mean = float(t.mean(_reward_at(t, place))) / float(t.mean(has))
        found.append((mean, gradient_of(t, has)))
    return found


def _reward_at(t: Trajectories, place: int) -> FloatArray:
    """Return the reward of each trajectory at a turn index, 0 where it has no such turn."""
    reward = np.zeros(t.length.size)
    has = t.length > place
    reward[has] = t.reward[t.first[has] + place]
    return reward
