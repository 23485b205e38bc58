"""Two processes (gloo) do what one does: tasks, pooled statistics, collective generation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.tiny import model_path
from gem_trl.ranks import hold_rank

SCRIPT = Path(__file__).with_name("ranks.py")


OF_ONE = ("rebn", "grpo", "gae", "gradient", "rows", "server", "requests")
MODES = {1: OF_ONE, 2: (*OF_ONE, "uneven", "train")}


@pytest.fixture(scope="module")
def ranks(make_recipe, tmp_path_factory):
    """``ranks(mode, count)``: the result of a mode of ``ranks.py``, by each of ``count`` ranks."""
    model = model_path(make_recipe())

    @cache
    def play(count):
        out = tmp_path_factory.mktemp(f"ranks{count}")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={count}", str(SCRIPT), str(out), model, *MODES[count]]
        environment = {**os.environ, "ACCELERATE_USE_CPU": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=800, env=environment)
        return done, out

    def read(mode, count):
        done, out = play(count)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads((out / mode / f"{rank}.json").read_text()) for rank in range(count)]

    return read


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


def test_the_first_gradient_is_that_of_one_rank(ranks):
    (expected,) = ranks("gradient", 1)
    first, second = ranks("gradient", 2)
    assert first == second
    for aggregation, alone in expected.items():
        two = first[aggregation]
        assert two["norm"] == pytest.approx(alone["norm"], rel=1e-5) and alone["norm"] > 0
        assert two["turns"] == alone["turns"] and len(set(alone["turns"])) > 2
        assert two["stops"] == alone["stops"] and alone["stops"].count(alone["stops"][5]) == 1
        places, gradients = two["storages"]  # views of DDP's buckets, no copies beside them
        assert places < gradients


def test_ranks_with_unequal_numbers_of_rows_have_the_gradient_of_one(ranks):
    (expected,) = ranks("rows", 1)
    parts = ranks("rows", 2)
    for name, alone in expected.items():
        numbers = [part[name]["rows"] for part in parts]
        assert sum(numbers) == alone["rows"] and numbers[0] != numbers[1]
        for part in parts:
            assert part[name]["norm"] == pytest.approx(alone["norm"], rel=1e-5)
    assert expected["sequence"]["norm"] == pytest.approx(expected["in passes"]["norm"], rel=1e-5)
    assert expected["sequence"]["norm"] != pytest.approx(expected["token"]["norm"], rel=1e-3)


def test_a_vllm_server_is_called_by_all_ranks_together(ranks):
    (alone,) = ranks("server", 1)
    parts = ranks("server", 2)
    assert parts[0]["actions"] + parts[1]["actions"] == alone["actions"]
    # Rank 0 makes every call, always with equally many prompts of each rank.
    assert len(parts[0]["calls"]) == max(alone["turns"])
    assert all(size % 2 == 0 for size in parts[0]["calls"]) and not parts[1]["calls"]


def test_each_rank_sends_its_turns_to_a_vllm_server_where_environments_block(ranks):
    """Only the second rank's do: the first one must not wait for it in a collective call."""
    (together,) = ranks("server", 1)
    (alone,) = ranks("requests", 1)
    parts = ranks("requests", 2)
    assert parts[0]["actions"] + parts[1]["actions"] == alone["actions"] == together["actions"]
    for key in ("turns", "advantages"):
        assert alone[key] == together[key]
    for rank in (alone, *parts):
        assert rank["calls"] == [1] * sum(rank["turns"]) and not rank["in_main_thread"]


def test_ranks_with_fewer_episodes_make_dummy_calls(ranks):
    first, second = ranks("uneven", 2)
    assert first["right"] == [True] * 3 and second["right"] == [True] * 2
    assert first["calls"] == [6, 2]


def test_a_rank_waits_for_its_predecessor(tmp_path):
    program = (
        "import sys, time, pathlib; from gem_trl.ranks import hold_rank;"
        "hold_rank(pathlib.Path(sys.argv[1]), 1); print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as old:
        try:
            assert old.stdout.readline() == "held\n"
            hold_rank(tmp_path, 0)  # another rank's place is free
            with pytest.raises(RunError, match=f"process {old.pid} of an earlier session"):
                hold_rank(tmp_path, 1, patience_s=0.3)
        finally:
            old.kill()
    hold_rank(tmp_path, 1, patience_s=5)
    hold_rank(tmp_path, 1, patience_s=0)  # this process has it


def test_a_rank_ends_with_its_torchrun(tmp_path):
    rank = (
        "import os, time; from gem_trl.ranks import end_with_parent; end_with_parent();"
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    agent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": "1"}
    command = [sys.executable, "-c", agent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert int(parent.stdout.readline())
        parent.kill()
        parent.communicate(timeout=20)  # the pipe ends with the rank, which would sleep longer


@pytest.mark.slow
@pytest.mark.parametrize("agent", [False, True])
def test_two_ranks_resume_at_once_after_a_kill(make_recipe, tmp_path, agent):
    keys = ["train.steps=12", "train.save_every=1", "hardware.gpus_per_node=2"]
    run = RunDir.create(tmp_path / "run", make_recipe(*keys), "trl")
    command = [sys.executable, "-m", "gem_trl.launch", str(run.path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            patience = time.monotonic() + 300
            while len(run.metrics()) < 3 and process.poll() is None:
                assert time.monotonic() < patience
                time.sleep(0.02)
            locks = [run.checkpoints / f".rank-{rank}.lock" for rank in (0, 1)]
            old = [int(lock.read_text()) for lock in locks]
            torchrun = int(Path(f"/proc/{old[0]}/stat").read_text().split()[3])
        finally:
            process.kill()
        if agent:  # nothing is left that could end the ranks
            os.kill(torchrun, signal.SIGKILL)
    subprocess.run([*command, "--resume"], check=True, timeout=500)
    assert [row["step"] for row in run.metrics()] == list(range(1, 13))
    assert not [pid for pid in old if Path(f"/proc/{pid}").exists()]


def test_two_ranks_train_the_same_model_and_resume_from_the_same_checkpoint(ranks):
    first, second = ranks("train", 2)
    assert first["step"] == second["step"] == 3
    assert first["sum"] == second["sum"]
    assert first["evaluation"] == second["evaluation"] == list(range(5))
    resumed = [rank["restored"] for rank in (first, second)]
    assert [rank["checkpoint"] for rank in resumed] == ["seen-by-0/checkpoint-1"] * 2
    assert resumed[0]["left"] == ["checkpoint-1"], "the unfinished one is not deleted"
    assert resumed[1]["left"] == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
