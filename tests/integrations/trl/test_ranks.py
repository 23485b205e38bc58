"""Two processes (gloo) do what one does: tasks, pooled statistics, collective generation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gem_core.tiny import model_path

SCRIPT = Path(__file__).with_name("ranks.py")


@pytest.fixture
def ranks(make_recipe, tmp_path):
    """``ranks(mode, count)``: run the script in ``count`` processes; one result per rank."""
    model = model_path(make_recipe())

    def start(mode, count):
        out = tmp_path / f"{mode}{count}"
        out.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={count}", str(SCRIPT), mode, str(out), model]
        environment = {**os.environ, "ACCELERATE_USE_CPU": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=800, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads((out / f"{mode}-{rank}.json").read_text()) for rank in range(count)]

    return start


@pytest.mark.parametrize("mode", ["rebn", "grpo", "gae"])
def test_advantages_are_pooled_over_ranks(ranks, mode):
    (alone,) = ranks(mode, 1)
    parts = ranks(mode, 2)
    for key in ("tasks", "turns", "actions"):
        assert parts[0][key] + parts[1][key] == alone[key]
    assert parts[0]["tasks"] == [0, 1, 2, 3]
    assert len(set(alone["turns"])) > 1, "all episodes are equally long: the test shows nothing"
    pooled = parts[0]["advantages"] + parts[1]["advantages"]
    for advantages, expected in zip(pooled, alone["advantages"], strict=True):
        np.testing.assert_allclose(advantages, expected, rtol=1e-6, atol=1e-6)
    assert parts[0]["items"] == parts[1]["items"] == alone["items"]
    if mode == "gae":  # the critics learned the same from gradients summed over ranks
        assert parts[0]["critic"] == parts[1]["critic"]
        assert parts[0]["critic"] == pytest.approx(alone["critic"], abs=1e-3)


def test_a_vllm_server_is_called_by_all_ranks_together(ranks):
    (alone,) = ranks("server", 1)
    parts = ranks("server", 2)
    assert parts[0]["actions"] + parts[1]["actions"] == alone["actions"]
    # Rank 0 makes every call, always with equally many prompts of each rank.
    assert len(parts[0]["calls"]) == max(alone["turns"])
    assert all(size % 2 == 0 for size in parts[0]["calls"]) and not parts[1]["calls"]


def test_ranks_with_fewer_episodes_make_dummy_calls(ranks):
    first, second = ranks("uneven", 2)
    assert first["right"] == [True] * 3 and second["right"] == [True] * 2
    assert first["calls"] == [6, 2]


def test_two_ranks_train_the_same_model(ranks):
    first, second = ranks("train", 2)
    assert first["step"] == second["step"] == 3
    assert first["sum"] == second["sum"]
    assert first["evaluation"] == second["evaluation"] == list(range(5))
