"""What the laboratory measures of every estimator, as the rows of its result file."""

from __future__ import annotations

from typing import Any

import closed_forms
import numpy as np
import turn_estimators  # noqa: F401  (registers its estimators)
from batches import Case
from estimate import angle, exact_expectation, measure
from exact import Trajectories, expected_sum, gradient, list_trajectories, objective
from processes import PROCESSES, FloatArray

from gem_core.advantages import TurnBatch, compute_advantages

CASES = (
    Case("reinforce"),
    Case("rebn"),
    Case("gae"),
    Case("gae", critic="zero"),
    Case("rloo"),
    Case("dr_grpo"),
    Case("grpo"),
    Case("turn_loo"),
    Case("turn_index"),
)
GROUP_SIZE = 8
BATCHES = (8, 16, 32, 64, 128, 256, 512)
REPETITIONS = 1000
SEED = 7244
EXACT = "retry"
"""The process whose batches are gone through one by one."""
EXACT_BATCHES = (2, 4, 8, 16, 32, 64, 128)
REPORTED = "tools"
"""The process that shows what verl's issue 7244 reports."""
Row = dict[str, Any]


def row_of(case: Case) -> Row:
    """Return the columns that name a case."""
    return {"case": case.label, "estimator": case.estimator, "critic": case.critic}


def describe_processes() -> list[Row]:
    """Return size, objective and lengths of every process."""
    rows = []
    for process in PROCESSES.values():
        t = list_trajectories(process)
        length = t.length.astype(np.float64)
        mean = float(t.mean(length))
        total = t.total(t.reward)
        rows.append(
            {
                "process": process.name,
                "about": process.about,
                "trajectories": int(length.size),
                "turns": mean,
                "turns_std": float(t.mean((length - mean) ** 2)) ** 0.5,
                "objective": objective(t),
                "return_std": float(t.mean((total - objective(t)) ** 2)) ** 0.5,
                "gradient": gradient(t).tolist(),
            }
        )
    return rows


def find_limits() -> list[Row]:
    """Return the degrees between the gradient of a very large batch and the exact one."""
    rows = []
    for name, process in PROCESSES.items():
        t = list_trajectories(process)
        exact = gradient(t)
        found = {
            "reinforce": expected_sum(t, t.returns()),
            "gae, V exact": _of_all(t, "gae", t.value),
            "gae, V zero": _of_all(t, "gae", np.zeros_like(t.value)),
            "rebn": closed_forms.rebn(t),
            "grpo": closed_forms.grpo(t),
            "turn_index": closed_forms.turn_index(t),
            "rloo, mean of each episode": closed_forms.sequence_mean(t, _centred(t)),
        }
        discounted = closed_forms.discounted(t, 0.9)
        rows.append(
            {
                "process": name,
                "degrees": {label: angle(limit, exact) for label, limit in found.items()},
                "discounted": angle(discounted, exact),
                "discounted_own": angle(discounted, gradient(t, 0.9)),
            }
        )
    return rows


def go_through_batches() -> list[Row]:
    """Return the exact expectation of every estimator over all batches of one process."""
    t = list_trajectories(PROCESSES[EXACT])
    exact = gradient(t)
    rows = []
    for case in CASES:
        for episodes in EXACT_BATCHES:
            mean, covariance = exact_expectation(t, case, episodes)
            row = {
                **row_of(case),
                "episodes": episodes,
                "angle": angle(mean, exact),
                "bias": float(np.linalg.norm(mean - exact) / np.linalg.norm(exact)),
                "noise": float(np.trace(covariance) / (mean @ mean)),
            }
            if case.estimator == "rebn":
                row["first_order_off"] = angle(mean, closed_forms.rebn(t, episodes))
            rows.append(row)
    return rows


def sample_batches() -> list[Row]:
    """Return bias, noise and angles of every estimator on every process, by Monte Carlo."""
    rows = []
    for name, process in PROCESSES.items():
        t = list_trajectories(process)
        for episodes in BATCHES:
            measured = measure_at(t, list(CASES), episodes)
            for case, figures in zip(CASES, measured, strict=True):
                rows.append({"process": name, "episodes": episodes, **row_of(case), **figures})
    return rows


def measure_at(t: Trajectories, cases: list[Case], episodes: int) -> list[Row]:
    """Measure cases on the same batches of a size."""
    return measure(
        t,
        cases,
        episodes=episodes,
        group_size=GROUP_SIZE,
        repetitions=REPETITIONS,
        seed=SEED + episodes,
    )


def split_turn_index() -> list[Row]:
    """Return what centring at each turn index takes from each parameter of one process."""
    t = list_trajectories(PROCESSES[REPORTED])
    exact, limit = gradient(t), closed_forms.turn_index(t)
    return [
        {"parameter": k, "exact": float(exact[k]), "taken": float(exact[k] - limit[k])}
        for k in range(exact.size)
    ]


def _of_all(t: Trajectories, estimator: str, values: FloatArray) -> FloatArray:
    """Return the expectation of an estimator that takes one episode at a time."""
    batch = TurnBatch(t.reward, t.of_turn, values=values)
    return expected_sum(t, compute_advantages(estimator, batch, gamma=1.0, lam=0.95))


def _centred(t: Trajectories) -> FloatArray:
    """Return the return of each trajectory minus the mean of its task."""
    total = t.total(t.reward)
    weight = np.bincount(t.task, weights=t.probability)
    return total - (np.bincount(t.task, weights=t.probability * total) / weight)[t.task]
