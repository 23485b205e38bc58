"""A training on two nodes of a Ray cluster on this machine, of which one dies in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from ray.cluster_utils import Cluster
from transformers import AutoModelForCausalLM

from gem_core.runs.directory.run_dir import RunDir

NODE = {"num_cpus": 16, "object_store_memory": 200 * 2**20}
SMALL = (
    "batch.episodes=8",
    "model.tiny.warm_start_steps=60",
    "train.steps=4",
    "train.save_every=1",
    "train.log_episodes=8",
    "eval.episodes=4",
)


@contextmanager
def two_nodes(gpus):
    """A cluster of two nodes with ``gpus`` logical GPUs each: its address, and the second node."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray refuses made-up GPUs beside an empty list
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_gpus": gpus})
    try:
        yield cluster, cluster.add_node(**NODE, num_gpus=gpus)
    finally:
        cluster.shutdown()


def start(trainer, path, *overrides, address=None, resume=False):
    """``gem-core train`` in a process group of its own, as on the first machine."""
    command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
    command += ["--profile", "tiny", "--trainer", trainer, "--run", str(path)]
    command += ["--resume"] if resume else []
    for override in (*SMALL, *overrides):
        command += ["--set", override]
    variables = {**os.environ, **({"RAY_ADDRESS": address} if address else {})}
    with Path(f"{path}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=variables
        )


def finish(process, path, seconds=900):
    """Wait for its end, and return its exit code and the end of its output."""
    try:
        code = process.wait(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
    return code, Path(f"{path}.log").read_text()[-6000:]


def wait_for_a_checkpoint(process, path, seconds=900):
    """Wait until the run has a second step; it must still be running then."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, Path(f"{path}.log").read_text()[-6000:]
        if path.exists() and len(RunDir(path).metrics()) >= 2:
            return
        time.sleep(0.2)
    raise AssertionError(Path(f"{path}.log").read_text()[-6000:])


def drawn(path):
    """The actions of every training episode, by step and task."""
    return {
        (tags["step"], episode.index): [turn.action for turn in episode.turns]
        for tags, episode in RunDir(path).episodes()
        if tags["split"] == "train"
    }


def require_same_training(two, one):
    """Both runs drew the same actions and ended in the same weights."""
    assert RunDir(two).result["steps"] == RunDir(one).result["steps"] == 4
    assert len(drawn(two)) == 32
    assert drawn(two) == drawn(one)
    first, second = (weights(path) for path in (one, two))
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=1e-6)


def weights(path):
    """The trained weights of a run."""
    model = AutoModelForCausalLM.from_pretrained(RunDir(path).model, dtype=torch.float32)
    return model.state_dict()


def require_that_a_node_may_die(trainer, folder, *overrides):
    """Two nodes, one dies, the run goes on: what one machine with two ranks trains undisturbed."""
    two, one = folder / "two", folder / "one"
    keys = ("hardware.nodes=2", *overrides)
    with two_nodes(gpus=1) as (cluster, doomed):
        process = start(trainer, two, *keys, address=cluster.address)
        wait_for_a_checkpoint(process, two)
        cluster.remove_node(doomed)
        code, said = finish(process, two)
        assert code != 0 and not (two / "result.json").exists(), said
        cluster.add_node(**NODE, num_gpus=1)
        process = start(trainer, two, *keys, address=cluster.address, resume=True)
        code, said = finish(process, two)
        assert code == 0, said
    code, said = finish(start(trainer, one, "hardware.gpus_per_node=2", *overrides), one)
    assert code == 0, said
    require_same_training(two, one)
