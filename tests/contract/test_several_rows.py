"""Episodes of several rows: rows, advantages, loss, gradient and weights are the reference's."""

from __future__ import annotations

import pytest

from gem_core.errors import GemError
from gem_parity.bounds import WEIGHTS
from gem_parity.cases import RunCase
from gem_parity.frozen import frozen_episodes
from gem_parity.measure import measure
from gem_parity.recorded import recorded_run
from gem_parity.teacher_forced import Follower

HISTORIES = ["last", "window", "concat"]


def overrides(history, *more):
    keys = ["algorithm.estimator=rebn", "batch.episodes=16", "batch.group_size=2"]
    keys += ["algorithm.epochs=1", f"context.history={history}", *more]
    return keys + ["context.window=1"] * (history == "window")


def frozen(history):
    return frozen_episodes(16, group_size=2, history=history)


def test_the_frozen_batch_has_uneven_numbers_of_rows():
    for history in HISTORIES:
        numbers = {sum(any(s.loss_mask) for s in e.segments) for e in frozen(history)}
        assert {0, 1} < numbers and max(numbers) >= 4


@pytest.mark.parametrize(
    ("history", "keys"),
    [
        *((history, ()) for history in HISTORIES),
        ("last", ("algorithm.loss_aggregation=sequence",)),
        ("last", ("algorithm.loss_aggregation=sequence", "batch.micro_batch=2")),
        ("window", ("batch.micro_batch=1",)),
        ("last", ("algorithm.estimator=grpo",)),
    ],
)
def test_the_first_gradient(adapter, expect, tiny, model_dir, history, keys):
    recipe = tiny(*overrides(history, *keys))
    found = adapter.replay(recipe, frozen(history), model_dir)
    assert measure(found, expect(recipe, frozen(history))).faults == []


def lose_a_row(batch):
    victim = next(e for e in batch if sum(any(s.loss_mask) for s in e.segments) > 1)
    victim.segments.pop()


def take_the_advantage_of_another_turn(batch):
    victim = next(e for e in batch if len(e.segments) > 2 and not e.stop_reason.failed)
    first, second = victim.segments[:2]
    (turn, *place), (other, *elsewhere) = first.spans[0], second.spans[0]
    first.spans, second.spans = [(other, *place)], [(turn, *elsewhere)]


@pytest.mark.parametrize("fault", [lose_a_row, take_the_advantage_of_another_turn])
def test_a_fault_in_the_rows_is_found(adapter, expect, tiny, model_dir, fault):
    recipe, broken = tiny(*overrides("last")), frozen("last")
    fault(broken)
    try:
        found = adapter.replay(recipe, broken, model_dir)
    except GemError as error:  # RL2's adapter counts the turns itself
        assert fault is lose_a_row and "turns were played" in str(error)
        return
    assert measure(found, expect(recipe, frozen("last"))).faults


_LAST = ("context.history=last", "algorithm.estimator=rebn")
RUNS = {
    "row per turn": RunCase(2, _LAST),
    "window": RunCase(
        2, ("context.history=window", "context.window=1", "algorithm.estimator=grpo")
    ),
    "mean of rows": RunCase(
        2, (*_LAST, "algorithm.loss_aggregation=sequence", "algorithm.max_grad_norm=100")
    ),
    "mean of rows, micro-batches": RunCase(
        2,
        (
            *_LAST,
            "algorithm.loss_aggregation=sequence",
            "algorithm.max_grad_norm=100",
            "batch.micro_batch=4",
        ),
        ("algorithm.entropy_coef=0",),
    ),
    "narrow clip, micro-batches": RunCase(
        2,
        (*_LAST, "algorithm.clip_low=0.02", "algorithm.clip_high=0.02", "batch.micro_batch=2"),
        ("algorithm.entropy_coef=0",),
    ),
    "critic": RunCase(2, ("context.history=last", "algorithm.estimator=gae")),
}


def follow(adapter, recipe, model_dir, change=None):
    """Compare a recorded run; return what was found, and the minibatches of every step."""
    steps = []
    with Follower(recipe, recorded_run(recipe), model_dir, adapter.TRAITS) as follower:

        def on_step(done, trace):
            if change and done:
                change(trace.minibatches)
            steps.append(trace.minibatches)
            follower(done, trace)

        adapter.replay_run(recipe, recorded_run(recipe), model_dir, on_step)
    return follower.finish(), steps[1:]


def divided(minibatches):
    """Return the episodes whose turns are in both minibatches of the first epoch."""
    first, second = ({episode for episode, _ in units} for units in minibatches[:2])
    return first & second


@pytest.mark.parametrize("name", list(RUNS))
def test_weights_after_every_step(adapter, config, refused, model_dir, name):
    recipe = RUNS[name].recipe(list(refused))
    config.translate(recipe)
    result, steps = follow(adapter, recipe, model_dir)
    assert not result.faults, "; ".join(result.faults)
    assert result.moved > 10 * WEIGHTS
    assert any(divided(minibatches) for minibatches in steps)  # rows are divided, not episodes
    if name.startswith("narrow clip"):
        assert all(count > 0 for count in result.clipped)


def move_a_row(minibatches):
    """Say of a row of one minibatch that it was in the other, where another of its episode is."""
    first, second = minibatches[:2]
    unit = next(unit for unit in first if unit[0] in divided(minibatches))
    first.remove(unit)
    second.append(unit)


def test_a_row_in_another_minibatch_is_found(adapter, refused, model_dir):
    recipe = RUNS["row per turn"].recipe(list(refused), 1)
    result, _ = follow(adapter, recipe, model_dir, move_a_row)
    assert any("policy out of bounds after step 1" in fault for fault in result.faults)
