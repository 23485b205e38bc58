"""Two ranks over gloo: the first update is that of one rank, with failed and uneven episodes."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("ranks.py")
SPEC = importlib.util.spec_from_file_location("openrlhf_ranks", PROGRAM)
RANKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RANKS)
DRAWN = ("sampling.top_k=20", "sampling.support=drawn", "algorithm.entropy_coef=0.01")
CASES = {
    "passes": ("batch.micro_batch=2", RANKS.FAILED_FIRST),
    "tokens": ("batch.max_tokens_per_device=160", "limits.max_context_tokens=160"),
    "sequences": ("batch.micro_batch=4", "algorithm.loss_aggregation=sequence"),
    "kl": ("batch.micro_batch=4", "algorithm.kl_coef=0.1", "algorithm.entropy_coef=0.01"),
    "rows": ("context.history=last", "batch.micro_batch=2", "algorithm.entropy_coef=0.01"),
    "rows, sequences": ("context.history=last", "algorithm.loss_aggregation=sequence"),
    "drawn": (*DRAWN, "batch.micro_batch=2", "algorithm.kl_coef=0.1"),
    "drawn, divided": (*DRAWN, "context.history=last", "hardware.sharding=full"),
    "whole": (),
    "divided": ("batch.micro_batch=2", "hardware.sharding=full"),
}


@pytest.fixture(scope="module")
def two_ranks(model_dir, tmp_path_factory):
    """By case, the figures of its update in two processes, which report the same ones."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(2):
        arguments = [str(rank), "2", port, model_dir, folder / f"{rank}.json"]
        with (folder / f"{rank}.log").open("wb") as log:
            command = [sys.executable, PROGRAM, *arguments, json.dumps(list(CASES.values()))]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
    codes = [process.wait(timeout=600) for process in processes]
    assert codes == [0, 0], [(folder / f"{rank}.log").read_text()[-3000:] for rank in range(2)]
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    for figures, others in zip(first, second, strict=True):
        assert figures == pytest.approx(others, rel=1e-6)
    return dict(zip(CASES, first, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_make_the_update_of_one(two_ranks, model_dir, case):
    one = RANKS.update(model_dir, CASES[case])
    assert one["gem/grad_norm"] > 0.1 and one["gem/grad_norm/critic"] > 0.1
    assert two_ranks[case] == pytest.approx(one, rel=1e-5, abs=1e-7)
