"""The estimators' laboratory: exact gradients by automatic differentiation, and a trainer's own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "laboratory"
NAMES = ("bandit", "retry", "random stop", "tools", "search", "two tasks", "long")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The laboratory's modules can be imported."""
    monkeypatch.syspath_prepend(str(FOLDER))


def expected_return(process, theta, gamma):
    """The expected return from state to state, as a function of the parameters that torch sees."""
    import torch

    known = {}

    def value(state):
        if state is None:
            return torch.zeros((), dtype=torch.float64)
        if state not in known:
            chances = torch.softmax(torch.from_numpy(process.features(state)) @ theta, dim=0)
            known[state] = sum(
                chance * o.probability * (o.reward + gamma * value(o.state))
                for action, chance in enumerate(chances)
                for o in process.outcomes(state, action)
            )
        return known[state]

    return sum(task.weight * value(task.state) for task in process.tasks)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_exact_gradients_are_those_of_automatic_differentiation(name, gamma):
    import torch

    exact = import_module("exact")
    processes = import_module("processes").PROCESSES
    assert set(NAMES) == set(processes)
    theta = torch.tensor(processes[name].theta, requires_grad=True)
    objective = expected_return(processes[name], theta, gamma)
    objective.backward()
    t = exact.list_trajectories(processes[name])
    assert objective.item() == pytest.approx(exact.objective(t, gamma), rel=1e-12)
    size = np.linalg.norm(theta.grad.numpy())
    assert np.linalg.norm(exact.gradient(t, gamma) - theta.grad.numpy()) <= 1e-10 * size


def test_the_first_gradient_is_the_laboratorys(trainer_name, model_dir):
    gradients = import_module("first_gradients")
    case = import_module("batches").Case("rebn", gamma=0.9, aggregation="token")
    compared = gradients.compare(trainer_name, "tools", case, model_dir)
    assert compared.turns > gradients.EPISODES and compared.norm > 0.1
    assert compared.difference <= gradients.BOUND
