"""Recorded runs through the real package: weights after every step agree with the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gem_core.errors import RecipeError
from gem_parity.bounds import WEIGHTS
from gem_parity.cases import RUNS
from gem_parity.recorded import StepTrace, recorded_run
from gem_parity.replays import load_replay
from gem_parity.teacher_forced import Follower, teacher_forced
from gem_parity.traits import Traits

STEPS = 2


@pytest.fixture(scope="module")
def adapter(package):
    """The trainer's replay module."""
    return load_replay(package.removeprefix("gem_"))


@pytest.mark.parametrize("name", list(RUNS))
def test_weights_after_every_step(adapter, config, refused, model_dir, name):
    case = RUNS[name]
    recipe = case.recipe(list(refused), STEPS)
    refusal = case.refusal(refused)
    if refusal is not None:
        with pytest.raises(RecipeError, match=refusal.replace(".", r"\.")):
            config.translate(recipe)
        return
    config.translate(recipe)
    result = teacher_forced(recipe, model_dir, adapter.replay_run, adapter.TRAITS)
    assert not result.faults, "; ".join(result.faults)
    assert result.not_compared == ["loss"]
    assert len(result.policy) == STEPS + 1
    assert result.moved > 10 * WEIGHTS
    if name == "narrow clip":
        assert all(count > 0 for count in result.clipped)


@pytest.mark.parametrize("key", ["algorithm.entropy_coef", "algorithm.kl_coef"])
def test_what_is_left_out_is_really_refused(config, refused, key):
    recipe = RUNS["rebn"].recipe()
    if key in refused:
        with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
            config.translate(recipe)


BEYOND_THE_RUN = {"divided", "rate_over", "kl_limit", "valued_ends"}
"""Traits that do not show in the run below: its minibatches are large ("a minibatch per episode"
above shows the first two), no policy of a recorded run is far enough from the initial model
(``test_kl_term.py`` of the trainers that have a limit calls their function), and each of its
episodes is one sequence ("critic" of ``test_several_rows.py`` fails without the last)."""


def test_every_trait_is_the_trainers(adapter, refused, model_dir):
    """Without any one of the declared traits the reference leaves the trainer's weights."""
    large = ("algorithm.lr=2e-3", "algorithm.weight_decay=0.5", "algorithm.entropy_coef=0.5")
    large = (*large, "algorithm.kl_coef=0.5")
    recipe = replace(RUNS["ppo, whitened"], also=large).recipe(list(refused), STEPS)
    traces: list[StepTrace] = []
    batches = recorded_run(recipe)
    adapter.replay_run(recipe, batches, model_dir, lambda done, trace: traces.append(trace))
    assert followed(recipe, model_dir, adapter.TRAITS, traces) == []
    for name in adapter.TRAITS.differences().keys() - BEYOND_THE_RUN:
        traits = replace(adapter.TRAITS, **{name: getattr(Traits(), name)})
        assert followed(recipe, model_dir, traits, traces), f"{name} is not needed"


def followed(recipe, model_dir, traits, traces):
    """What the reference with ``traits`` says of what a trainer did."""
    follower = Follower(recipe, recorded_run(recipe), model_dir, traits)
    for done, trace in enumerate(traces):
        follower(done, trace)
    return follower.finish().faults
