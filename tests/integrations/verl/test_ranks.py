"""Two ranks of verl's actor over gloo, beside one."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from verl.workers.rollout.replica import TokenOutput

EPISODES = 6
ONE_UPDATE = ("algorithm.epochs=1", "algorithm.minibatches=1", "limits.max_context_tokens=128")


def broken(*_):
    """An engine that gives up its request: the episode is kept, and not trained on."""
    return TokenOutput(token_ids=[], stop_reason="aborted")


@pytest.fixture
def samples(tiny, play_task, sample_from):
    """Episodes of different lengths; one failed."""
    recipe = tiny(f"batch.episodes={EPISODES}")
    answers = [broken if index == 2 else sample_from(seed=index) for index in range(EPISODES)]
    played = [play_task(recipe, answer, index)[0] for index, answer in enumerate(answers)]
    return [sample for samples in played for sample in samples]


def first_updates(file, world):
    """What rank 0 prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(file)]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank),
                 "LOCAL_WORLD_SIZE": str(world)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * world
    return json.loads(outputs[0].splitlines()[-1])


CASES = {
    "whole": (),
    "bounded": ("batch.max_tokens_per_device=128", "hardware.sharding=optimizer"),
}


def test_the_first_gradient_is_one_ranks(tiny, samples, model_dir, tmp_path):
    trained = [sample for sample in samples if any(sample.response_mask)]
    assert len(trained) == EPISODES - 1 < len(samples), "one row has nothing to train on"
    file = tmp_path / "batch"
    cases = {name: (tiny(*ONE_UPDATE, *keys), model_dir, samples) for name, keys in CASES.items()}
    file.write_bytes(pickle.dumps(cases))
    of_one, of_two = first_updates(file, 1), first_updates(file, 2)
    assert of_one.keys() == of_two.keys() == CASES.keys()
    for name, alone in of_one.items():
        both = of_two[name]
        assert (alone["rows"], both["rows"]) == (5, 6), name
        assert both["tokens"][0] != both["tokens"][1], name
        assert both["norm"] == pytest.approx(alone["norm"], rel=1e-5), name
        assert alone["norm"] > 0
