"""The weights turn Oat's chain of means into the recipe's one sum, whatever the micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import AlgorithmConfig
from gem_oat.loss import TurnLoss, loss_weights
from gem_oat.rows import Row, SegmentRow

SIZES = np.array([3, 1, 4, 2, 5, 1, 2, 2])
TURNS = [
    Row(0, 0, excluded=False),
    Row(0, 1, excluded=False),
    Row(1, 0, excluded=False),
    Row(2, 0, excluded=False),
    Row(2, 1, excluded=True),
    Row(3, 0, excluded=False),
    Row(-1),
    Row(-1),
]
ROWS = [
    SegmentRow(turns=(turn._replace(prompt=range(3), response=range(size)),))
    for turn, size in zip(TURNS, SIZES, strict=True)
]


def batch():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 99, (8, 9), generator=generator)
    mask = torch.zeros(8, 8, dtype=torch.bool)
    for n, size in enumerate(SIZES):
        mask[n, 2 : 2 + size] = True
    return ids, mask, torch.randn(8, 8, generator=generator)


def own_sum(array):
    """The sum over one rank."""
    return array


# -- the weights ----------------------------------------------------------------------------


FIRST = Row(0, 0, excluded=False, response=range(3))
SECOND = Row(0, 1, excluded=False, response=range(1))
EXCLUDED = Row(0, 2, excluded=True, response=range(9))
SOME = [
    SegmentRow(turns=(FIRST,)),
    SegmentRow(turns=(SECOND,)),
    SegmentRow(turns=(Row(1, 0, excluded=False, response=range(4)),)),
    SegmentRow(turns=(EXCLUDED._replace(episode=2),)),
    SegmentRow(),
]


@pytest.mark.parametrize(
    ("aggregation", "constant", "expected"),
    [
        ("token", None, [1 / 8, 1 / 8, 1 / 8, 0, 0]),
        ("sequence", None, [1 / 8, 1 / 8, 1 / 8, 0, 0]),
        ("constant", 5, [1 / 10, 1 / 10, 1 / 10, 0, 0]),
    ],
)
def test_weights_are_those_of_the_aggregation(aggregation, constant, expected):
    settings = AlgorithmConfig(loss_aggregation=aggregation, loss_constant=constant)
    weights = loss_weights(SOME, settings)
    np.testing.assert_allclose(weights.policy, expected)
    np.testing.assert_allclose(weights.turn, [1 / 3] * 3 + [0, 0])


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_turns_weigh_the_same_in_one_row_as_in_two(aggregation):
    settings = AlgorithmConfig(loss_aggregation=aggregation)
    together = loss_weights([SegmentRow(turns=(FIRST, SECOND, EXCLUDED)), *SOME[2:]], settings)
    apart = loss_weights(SOME, settings)
    assert together.policy.tolist() == apart.policy[1:].tolist()
    assert together.turn.tolist() == apart.turn[1:].tolist()


def test_the_mean_of_a_sequence_is_over_its_own_tokens():
    short = Row(1, 0, excluded=False, response=range(2))
    rows = [*SOME[:2], SegmentRow(turns=(short,))]
    weights = loss_weights(rows, AlgorithmConfig(loss_aggregation="sequence"))
    np.testing.assert_allclose(weights.policy, [1 / 8, 1 / 8, 1 / 4])


def test_weights_of_ranks_add_up_to_one_sum():
    single = loss_weights(SOME, AlgorithmConfig())
    double = loss_weights(SOME, AlgorithmConfig(), lambda array: 2 * array)
    np.testing.assert_allclose(double.policy, single.policy / 2)


def test_without_a_trained_row_all_weights_are_zero():
    for weights in loss_weights([SegmentRow()] * 3, AlgorithmConfig()):
        assert weights.tolist() == [0.0] * 3


# -- in Oat's chain of means ------------------------------------------------------------------


def oats_chain(loss, micro, minibatches, epochs, ids, mask, values, kinds):
    """Row, micro-batch and accumulation means as in oat.algorithms.ppo.PPOLearner."""
    per_minibatch = len(ids) // minibatches
    totals = {kind: [] for kind in kinds}
    for _ in range(epochs):
        order = np.random.permutation(len(ids))
        for begin in range(0, len(ids), per_minibatch):
            sums = dict.fromkeys(kinds, 0.0)
            for at in range(begin, begin + per_minibatch, micro):
                picked = order[at : at + micro]
                loss.enter(ids[picked])
                for kind in kinds:
                    rows = loss(values[picked], mask[picked], axis=1)
                    sums[kind] += float(rows.mean()) / (per_minibatch // micro)
            for kind in kinds:
                totals[kind].append((order[begin : begin + per_minibatch], sums[kind]))
    return totals


def recipes_mean(kind, algorithm, picked, mask, values):
    trained = [n for n in picked if not TURNS[n].excluded]
    if kind == "value":
        return np.mean([float(values[n, 2]) for n in trained])
    sums = {n: float((values[n] * mask[n]).sum()) for n in trained}
    tokens = {n: int(SIZES[n]) for n in trained}
    if algorithm.loss_aggregation == "token":
        return sum(sums.values()) / sum(tokens.values())
    sequences = {}
    for n in trained:
        sequences.setdefault((TURNS[n].episode, TURNS[n].segment), []).append(n)
    if algorithm.loss_aggregation == "constant":
        return sum(sums.values()) / algorithm.loss_constant / len(sequences)
    means = [sum(sums[n] for n in s) / sum(tokens[n] for n in s) for s in sequences.values()]
    return np.mean(means)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
@pytest.mark.parametrize(("micro", "minibatches", "epochs"), [(8, 1, 1), (2, 2, 2), (1, 1, 2)])
@pytest.mark.parametrize("kinds", [["policy"], ["policy", "kl", "value"]])
def test_oats_means_become_the_recipes_mean(recipe, aggregation, micro, minibatches, epochs, kinds):
    overrides = [
        f"algorithm.loss_aggregation={aggregation}",
        f"algorithm.epochs={epochs}",
        f"algorithm.minibatches={minibatches}",
    ]
    if aggregation == "constant":
        overrides.append("algorithm.loss_constant=7")
    algorithm = recipe(*overrides).algorithm
    ids, mask, values = batch()
    loss = TurnLoss(algorithm, kinds, 1, own_sum)
    before = np.random.get_state()[1].tolist()
    loss.plan(ROWS, ids, micro)
    assert np.random.get_state()[1].tolist() == before, "the global generator was used"
    totals = oats_chain(loss, micro, minibatches, epochs, ids, mask, values, kinds)
    for kind in kinds:
        for picked, total in totals[kind]:
            expected = recipes_mean(kind, algorithm, picked, mask, values)
            assert total == pytest.approx(expected, rel=1e-5)
    means = loss.finish()
    for kind in kinds:
        assert means[f"loss/{kind}"] == pytest.approx(np.mean([t for _, t in totals[kind]]))


def test_ranks_share_one_sum(recipe):
    """Two ranks with the same rows: each token weighs half, and the mean over ranks doubles it."""
    ids, mask, values = batch()
    single = TurnLoss(recipe().algorithm, ["policy"], 1, own_sum)
    double = TurnLoss(recipe().algorithm, ["policy"], 2, lambda array: 2 * array)
    losses = []
    for loss in (single, double):
        np.random.seed(0)
        loss.plan(ROWS, ids, 8)
        totals = oats_chain(loss, 8, 1, 1, ids, mask, values, ["policy"])
        losses.append(totals["policy"][0][1])
    assert losses[0] == pytest.approx(losses[1])


def test_another_order_than_predicted_is_noticed(recipe):
    ids, _, _ = batch()
    loss = TurnLoss(recipe().algorithm, ["policy"], 1, own_sum)
    loss.plan(ROWS, ids, 4)
    np.random.permutation(3)  # somebody else draws
    with pytest.raises(GemError, match="not the predicted ones"):
        loss.enter(ids[np.random.permutation(8)[:4]])


def test_updates_that_were_not_made_are_noticed(recipe):
    ids, _, _ = batch()
    loss = TurnLoss(recipe().algorithm, ["policy"], 1, own_sum)
    loss.plan(ROWS, ids, 4)
    with pytest.raises(GemError, match="fewer updates"):
        loss.finish()


def test_a_minibatch_without_a_trained_row_is_zero(recipe):
    ids, mask, values = batch()
    loss = TurnLoss(recipe().algorithm, ["policy"], 1, own_sum)
    loss.plan([SegmentRow()] * 8, ids, 8)
    totals = oats_chain(loss, 8, 1, 1, ids, mask, values, ["policy"])
    assert totals["policy"][0][1] == 0.0
