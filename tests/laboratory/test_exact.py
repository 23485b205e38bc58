"""Processes are listed completely, and their gradients are those of their objectives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact import gradient, list_trajectories, objective, policy, values
from processes import PROCESSES

NAMES = list(PROCESSES)


@pytest.mark.parametrize("name", NAMES)
def test_the_probabilities_of_all_trajectories_sum_to_one(trajectories, name):
    assert trajectories(name).probability.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_objective_is_the_value_of_the_first_states(trajectories, name):
    process = PROCESSES[name]
    value = values(process)
    expected = sum(task.weight * value[task.state] for task in process.tasks)
    assert objective(trajectories(name)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_gradient_is_the_slope_of_the_objective(name, gamma):
    process = PROCESSES[name]
    exact = gradient(list_trajectories(process), gamma)
    step = 1e-5
    for k in range(exact.size):
        ends = []
        for sign in (1, -1):
            theta = process.theta.copy()
            theta[k] += sign * step
            ends.append(objective(list_trajectories(replace(process, theta=theta)), gamma))
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(exact[k], abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_the_score_of_a_state_is_zero_on_average(trajectories, name):
    t = trajectories(name)
    assert np.abs(t.mean(t.total(t.score))).max() < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_what_an_action_may_lead_to_sums_to_one(trajectories, name):
    process = PROCESSES[name]
    for state in set(trajectories(name).state):
        for action in range(policy(process, state).size):
            chances = [o.probability for o in process.outcomes(state, action)]
            assert sum(chances) == pytest.approx(1.0, abs=1e-12)
