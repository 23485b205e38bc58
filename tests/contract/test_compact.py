"""``history = "compact"``: rows, advantages, loss, gradient and weights are the reference's."""

from __future__ import annotations

import pytest

from gem_core.episodes.context import Context
from gem_core.errors import GemError
from gem_core.runs.tasks import compact_of
from gem_parity.bounds import WEIGHTS
from gem_parity.cases import RunCase
from gem_parity.frozen import frozen_episodes
from gem_parity.measure import measure
from gem_parity.teacher_forced import teacher_forced

COMPACT = (
    "context.history=compact",
    "context.compact.budget=24",
    "context.compact.prompt=sum:",
    "context.compact.max_tokens=4",
)
FROZEN = "context.compact.trained=false"


def make(tiny, *more):
    keys = ["algorithm.estimator=rebn", "batch.episodes=16", "batch.group_size=2"]
    return tiny(*keys, "algorithm.epochs=1", *COMPACT, *more)


def frozen(recipe):
    return frozen_episodes(16, group_size=2, history="compact", compact=compact_of(recipe))


def summaries(episodes):
    """Every trained summary with a turn before it, as (episode, position in its turns)."""
    return [
        (episode, turn.index)
        for episode in episodes
        for turn in episode.turns
        if turn.kind == "summary" and not turn.aborted
    ]


def test_the_frozen_batch_has_summaries(tiny):
    counted = {sum(t.kind == "summary" for t in e.turns) for e in frozen(make(tiny))}
    assert {0, 1, 2} <= counted
    assert len(summaries(frozen(make(tiny)))) >= 5 and not summaries(frozen(make(tiny, FROZEN)))


@pytest.mark.parametrize(
    "keys",
    [
        (),
        (FROZEN,),
        ("algorithm.estimator=grpo",),
        ("algorithm.estimator=reinforce", "algorithm.gamma=0.5", "batch.micro_batch=1"),
        ("algorithm.loss_aggregation=sequence", FROZEN),
    ],
)
def test_the_first_gradient(adapter, expect, tiny, model_dir, keys):
    recipe = make(tiny, *keys)
    found = adapter.replay(recipe, frozen(recipe), model_dir)
    assert measure(found, expect(recipe, frozen(recipe))).faults == []


def do_not_train_the_summary(episode, number):
    segment, (_, start, end) = span_of(episode, number)
    segment.loss_mask[start:end] = [0] * (end - start)
    episode.turns[number].aborted = True


def give_it_the_advantage_of_the_turn_before(episode, number):
    segment, place = span_of(episode, number)
    at = segment.spans.index(place)
    before = segment.spans[at - 1]
    segment.spans[at - 1 : at + 1] = [(number, *before[1:]), (number - 1, *place[1:])]


def span_of(episode, number):
    return next((s, span) for s in episode.segments for span in s.spans if span[0] == number)


@pytest.mark.parametrize(
    "fault", [do_not_train_the_summary, give_it_the_advantage_of_the_turn_before]
)
def test_a_fault_is_found(adapter, expect, tiny, model_dir, fault):
    recipe = make(tiny)
    broken = frozen(recipe)
    episode, number = next(
        (e, n) for e, n in summaries(broken) if not e.stop_reason.failed and n + 1 < len(e.turns)
    )
    assert not episode.turns[number - 1].aborted
    fault(episode, number)
    assert is_found(adapter, expect, recipe, broken, model_dir)


def test_a_segment_that_begins_without_the_summary_is_found(adapter, expect, tiny, model_dir):
    recipe = make(tiny)
    fold = Context.fold
    with pytest.MonkeyPatch.context() as patch:  # as long, so that all else is the same
        patch.setattr(
            Context, "fold", lambda self, summary, *shown: fold(self, blank(summary), *shown)
        )
        broken = frozen(recipe)
    pairs = zip(broken, frozen(recipe), strict=True)
    assert all([s.spans for s in a.segments] == [s.spans for s in b.segments] for a, b in pairs)
    assert is_found(adapter, expect, recipe, broken, model_dir)


def blank(summary):
    return "?" * len(summary.encode())


def is_found(adapter, expect, recipe, broken, model_dir):
    try:
        found = adapter.replay(recipe, broken, model_dir)
    except GemError:  # an adapter that counts the turns itself
        return True
    return measure(found, expect(recipe, frozen(recipe))).faults != []


THREE = """
from gem_core.env.interface import Env
from gem_core.env.registration import register


class Three(Env):
    def _reset(self, options):
        self.turn = 0
        return "go", {}

    def _step(self, action):
        self.turn += 1
        return "on", float(self.turn == 2), self.turn == 3, False, {}  # of no action


def add():
    register("three:Three-v0", "three_turns:Three")
"""


@pytest.mark.slow("openrlhf", "rl2", "verl")
@pytest.mark.parametrize("trained", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_run(train, package_path, trained):
    package_path("three_turns", THREE, "[gem_core.envs]\nthree = three_turns:add\n")
    keys = ["env=[{id = 'three:Three-v0'}]", "model.tiny.warm_start_steps=0", "train.steps=1"]
    keys += ["train.log_episodes=8", "context.history=compact", "context.compact.max_tokens=4"]
    keys += ["context.compact.budget=1"]  # a request after every action but the last
    status, output, run = train("run", *keys, f"context.compact.trained={str(trained).lower()}")
    assert status == 0, output[-4000:]
    (row,) = run.metrics()
    assert row["summary/mean"] == 2 and row["turns/mean"] == 3 and row["grad_norm"] > 0
    stored = [episode for tags, episode in run.episodes() if tags["split"] == "train"]
    assert len(stored) == 8
    for episode in stored:
        assert len(episode.segments) == 3
        for segment in episode.segments[:-1]:
            (_, *act), (_, *summary) = segment.spans
            assert all(segment.loss_mask[slice(*act)])
            assert set(segment.loss_mask[slice(*summary)]) == {int(trained)}


RUNS = {
    "trained": RunCase(2, (*COMPACT, "algorithm.estimator=rebn")),
    "frozen": RunCase(2, (*COMPACT, FROZEN, "algorithm.estimator=rebn")),
    "critic": RunCase(2, (*COMPACT, "algorithm.estimator=gae")),
    "critic, frozen": RunCase(2, (*COMPACT, FROZEN, "algorithm.estimator=gae")),
}


@pytest.mark.parametrize("name", list(RUNS))
def test_weights_after_every_step(adapter, config, refused, model_dir, name):
    recipe = RUNS[name].recipe(list(refused))
    config.translate(recipe)
    result = teacher_forced(recipe, model_dir, adapter.replay_run, adapter.TRAITS)
    assert not result.faults, "; ".join(result.faults)
    assert result.moved > 10 * WEIGHTS
