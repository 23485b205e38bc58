"""The common metrics."""

from __future__ import annotations

import pytest

from gem_core.episodes.metrics import episode_metrics
from gem_core.episodes.rollout import play_batch


def test_metrics_of_a_small_batch(kit):
    machines = [
        kit.machine(kit.going("o", 0.5, error="invalid_action"), kit.won(1.0)),
        kit.machine(kit.going("o", 0.0), RuntimeError("x")),
    ]
    metrics = episode_metrics(play_batch(machines, kit.Echo()), prefix="eval/")
    expected = {
        "episodes": 2,
        "reward/mean": 0.75,
        "reward/std": 0.75,
        "reward/turn_mean": 1.5 / 4,
        "success/mean": 0.5,
        "turns/mean": 2,
        "turns/total": 4,
        "turns/invalid": 0.25,
        "tokens/action": 4,
        "stop/terminated": 0.5,
        "stop/env_error": 0.5,
        "stop/deadline": 0,
    }
    assert {k: metrics["eval/" + k] for k in expected} == pytest.approx(expected)
    assert sum(v for k, v in metrics.items() if k.startswith("eval/stop/")) == 1
    assert not any(key.startswith("eval/env/") for key in metrics)


def test_several_environments_are_also_counted_one_by_one(kit):
    episodes = play_batch([kit.machine(kit.won(1.0)), kit.machine(kit.won(3.0))], kit.Echo())
    episodes[1].env_id = "other"
    metrics = episode_metrics(episodes)
    assert metrics["reward/mean"] == 2.0
    assert metrics["env/Script/reward/mean"] == 1.0 and metrics["env/other/reward/mean"] == 3.0
