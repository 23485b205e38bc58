"""Two of Oat's learners make the update of one, with parts of uneven size and failed episodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from oat.utils.launcher import get_free_port

PARTS = [(0, 10), (10, 16)]
OVERRIDES = [
    "batch.episodes=16",
    "batch.group_size=2",
    "train.steps=2",
    "algorithm.epochs=1",
    "algorithm.lr=2e-3",
    "algorithm.lr_schedule=constant",
    "algorithm.loss_aggregation=sequence",
]


@pytest.mark.slow
def test_the_first_update_of_two_learners_is_that_of_one(recipe, learner, rows, tmp_path):
    for first, last in PARTS:  # both have failed episodes
        assert any(not r.row.trained for r in rows if first <= r.row.segment[0] < last)
    script = str(Path(__file__).with_name("two_learners.py"))
    port = str(get_free_port())
    workers = []
    for n, (first, last) in enumerate(PARTS):
        given = [str(n), port, str(tmp_path), str(first), str(last), *OVERRIDES]
        workers.append(subprocess.Popen([sys.executable, script, *given]))
    try:
        assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    made = learner(recipe(*OVERRIDES), alone=True)
    made._init(made.args, made.actors)
    made.steps = 0
    made.gradient_update_st = 0.0
    made.process_feedback_data(rows)
    made.learn(1)
    expected = {**made.losses, **made.summary, "ranks": 2}
    assert made.losses["grad_norm"] > 1e-3
    for n in range(2):
        result = json.loads((tmp_path / f"{n}.json").read_text())
        assert result == pytest.approx(expected, rel=1e-5, abs=1e-9)
