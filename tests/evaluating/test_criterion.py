"""The criterion of learning: what must not pass, what must, and how often its intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gem_core.errors import GemError
from gem_core.evaluation import criterion
from gem_core.evaluation.controls.file import CONTROLS
from gem_core.evaluation.criterion import compare, holm, judge, variance_of_mean, weigh
from gem_core.evaluation.student import quantile, upper_tail

SEEDS, TASKS = 5, 200
RATES = {
    "random": 0.2,
    "constant": 0.3,
    "sequence": 0.35,
    "start_sampled": 0.5,
    "start_greedy": 0.6,
}


def outcomes(rate, seed, seeds=SEEDS):
    """Outcomes with this success rate; easy tasks are easy for every player."""
    rng = np.random.default_rng(seed)
    easy = np.random.default_rng(1).normal(size=(1, TASKS))
    noise = rng.normal(size=(seeds, TASKS))
    scores = easy + noise
    return (scores > np.quantile(scores, 1 - rate)).astype(float)


def controls(seeds=SEEDS, **changed):
    rates = RATES | changed
    return {name: outcomes(rates[name], k, seeds) for k, name in enumerate(CONTROLS)}


def verdict(trained, others, **facts):
    facts = {"distinct": TASKS, "seen": 0} | facts
    return judge({"cell": weigh(trained, others, **facts)})["cell"]


def test_a_policy_above_every_control_learns():
    found = verdict(outcomes(0.85, 99), controls())
    assert found.learns and found.p < 1e-3 and str(found) == "learns"


def test_the_greedy_clone_of_an_expert_is_not_surpassed_by_a_policy_that_plays_as_it():
    others = controls(start_greedy=0.85)
    found = verdict(others["start_greedy"], others)
    assert not found.learns and found.reasons == ("not above start_greedy",)


def test_a_constant_answer_does_not_learn():
    others = controls(random=0.05, sequence=0.1, start_sampled=0.2, start_greedy=0.2)
    found = verdict(others["constant"], others)
    assert found.reasons == ("not above constant",)


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control_counts(name):
    """A policy that is as good as one control, and better than the others, does not learn."""
    others = controls(**{name: 0.85})
    assert verdict(outcomes(0.85, 99), others).reasons == (f"not above {name}",)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_criterion_without_a_control_is_refused(name):
    others = controls()
    del others[name]
    with pytest.raises(GemError, match=f"{name} is missing"):
        verdict(outcomes(0.85, 99), others)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_criterion_that_leaves_a_control_out_lets_a_policy_pass_that_has_not_learned(
    name, monkeypatch
):
    """The fault that `test_every_control_counts` is there for."""
    monkeypatch.setattr(criterion, "CONTROLS", [other for other in CONTROLS if other != name])
    assert verdict(outcomes(0.85, 99), controls(**{name: 0.85})).learns


def test_tasks_that_were_trained_on_are_no_evidence():
    found = verdict(outcomes(0.85, 99), controls(), seen=3)
    assert found.reasons == (f"3 of {TASKS} tasks are trained on",)
    found = verdict(outcomes(0.85, 99), controls(), distinct=99)
    assert found.reasons == ("99 distinct tasks, fewer than 100",)


def test_one_seed_is_said_to_be_one():
    found = verdict(outcomes(0.85, 99, seeds=1), controls(seeds=1))
    assert found.learns and str(found) == "learns (one seed)"


def test_controls_that_are_the_same_for_every_seed_are_given_once():
    others = controls()
    once = others | {"constant": outcomes(0.3, 7, seeds=1)}
    assert verdict(outcomes(0.85, 99), once).learns
    repeated = once | {"constant": np.repeat(once["constant"], SEEDS, axis=0)}
    assert verdict(outcomes(0.85, 99), once) == verdict(outcomes(0.85, 99), repeated)


def test_other_tasks_are_not_paired():
    others = controls()
    others["random"] = others["random"][:, :-1]
    with pytest.raises(GemError, match="same tasks"):
        verdict(outcomes(0.85, 99), others)


def test_equal_outcomes_are_no_certainty():
    ones = np.ones((3, TASKS))
    same = compare("x", ones, ones)
    assert same.low < 0 == same.mean < same.high and same.p == pytest.approx(0.5)
    all_better = compare("x", ones, np.zeros((1, TASKS)))
    assert all_better.low < 1 and all_better.p < 1e-9


def test_holm_over_baselines():
    """With many baselines, a difference that just passes alone does not pass."""
    cells = {
        "sure": weigh(outcomes(0.85, 99), controls(), distinct=TASKS, seen=0),
        **{
            f"null{k}": weigh(outcomes(0.6, 50 + k), controls(), distinct=TASKS, seen=0)
            for k in range(23)
        },
    }
    found = judge(cells)
    assert found["sure"].learns and not any(found[f"null{k}"].learns for k in range(23))
    assert found["sure"].p == pytest.approx(24 * cells["sure"].p)
    just = cells["sure"]._replace(
        differences=tuple(d._replace(p=0.04) for d in cells["sure"].differences)
    )
    assert judge({"a": just})["a"].learns
    both = judge({"a": just, "b": just})
    assert not both["a"].learns and "Holm" in both["a"].reasons[0]
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("seeds", "tasks", "of_seeds", "of_tasks"),
    [(1, 200, 0.0, 0.3), (5, 200, 0.03, 0.3), (5, 200, 0.1, 0.1), (3, 100, 0.05, 0.3)],
)
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, tasks, of_seeds, of_tasks):
    rng = np.random.default_rng(seeds + tasks)
    held = falsely = 0
    for _ in range(1000):
        table = of_seeds * rng.normal(size=(seeds, 1)) + of_tasks * rng.normal(size=(1, tasks))
        found = compare("x", table + 0.5 * rng.normal(size=(seeds, tasks)), np.zeros((1, tasks)))
        held += found.low <= 0 <= found.high
        falsely += found.p <= 0.05
    assert 925 <= held <= 985, held
    assert falsely <= 75, falsely


def test_the_variance_is_that_of_two_crossed_effects():
    """With effects so large that the floors of the estimate do not count."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2000):
        table = 0.8 * rng.normal(size=(20, 1)) + 1.2 * rng.normal(size=(1, 50))
        found.append(variance_of_mean(table + rng.normal(size=(20, 50)))[0])
    assert np.mean(found) == pytest.approx(0.64 / 20 + 1.44 / 50 + 1 / 1000, rel=0.03)


@pytest.mark.parametrize("freedom", [1, 1.3, 2, 2.5, 4, 30, 1000])
def test_students_t_is_that_of_scipy(freedom):
    for t in (-3.0, 0.0, 0.5, 2.0, 10.0):
        assert upper_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-6)
    for probability in (0.5, 0.9, 0.975, 0.9999):
        expected = stats.t.ppf(probability, freedom)
        assert quantile(probability, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert upper_tail(np.inf, freedom) == 0


def test_impossible_arguments_of_students_t():
    with pytest.raises(ValueError, match="freedom"):
        upper_tail(1.0, 0.5)
    with pytest.raises(ValueError, match="probability"):
        quantile(1.0, 3)
