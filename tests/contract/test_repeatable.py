"""The same experiment gives the same tokens, numbers and weights: by the command line and by the
trainer's script in recipes/, also beside other load, with environments in worker processes and
behind a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from gem_conform.trained import episode_tokens, numbers, weights
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import get_key
from gem_core.runs.tasks import MachineFactory
from gem_core.training.tiny import model_path

from .effects.in_run import IN_RUN, samples_as_the_core

TINY = load_recipe("guess-the-number-easy", "tiny")

SETTINGS = (
    "algorithm.epochs=2",
    "algorithm.minibatches=2",
    "name=repeated",
    "eval.every=1",
    "eval.inside_episodes=9",
    "train.log_episodes=8",
    'env.0.tools=["python"]',
    "env.0.tool_use.instructions=false",
    "sampling.temperature=0.9",
    "sampling.top_p=0.9",
    "sampling.top_k=3",
    "eval.temperature=1.5",
    "eval.top_p=0.6",
)
BUSY = """
import random, time
while True:
    until = time.perf_counter() + random.uniform(0.0, 0.02)
    while time.perf_counter() < until:
        pass
    time.sleep(random.uniform(0.0, 0.08))
"""
"""Takes a fifth of a processor, at unforeseen moments: a trainer's start needs most of it."""
BACKENDS = {"verl": "ray", "openrlhf": "ray"}
"""Where environments live in the second run; with the others, in processes of this machine."""
SEES_WORKERS = """
import os, sys
if any("gem_core.execution.workers.child" in argument for argument in sys.orig_argv):
    open(os.path.join(os.environ["GEM_TEST_WORKERS"], str(os.getpid())), "w").close()
"""
"""Writes down every worker process, in each process of the run that starts any."""


def model_settings(directory):
    """The configuration, tokenizer and ends of turns of the trained model."""
    found = {path.name: path.read_text() for path in directory.model.glob("*.json")}
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= found.keys()
    return found


def is_alive(pid):
    try:
        status = Path("/proc", pid, "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow("openrlhf", "rl2", "verl")
def test_a_run_repeats_to_the_digit_and_plays_what_every_trainer_plays(
    train, trainer_name, package_path, monkeypatch, tmp_path
):
    """The second time by the script, which puts the trainer together by hand, and with the
    environments in worker processes, all of which end with the run."""
    status, output, first = train("first", *SETTINGS)
    assert status == 0, output
    workers = tmp_path / "workers"
    workers.mkdir()
    package_path("sitecustomize", SEES_WORKERS)
    monkeypatch.setenv("GEM_TEST_WORKERS", str(workers))
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        backend = BACKENDS.get(trainer_name, "process")
        keys = (f"workers.backend={backend}", "workers.number=2")
        status, output, second = train("second", *SETTINGS, *keys, script=True)
    finally:
        for process in load:
            process.kill()
            process.wait()
    assert status == 0, output
    assert "step 2: success " in output and str(second.model) in output

    pids = [path.name for path in workers.iterdir()]
    assert len(pids) >= 2 and not any(map(is_alive, pids)), pids
    assert episode_tokens(first) == episode_tokens(second)
    assert numbers(first.metrics()) == numbers(second.metrics())
    assert numbers(first.evals()) == numbers(second.evals())
    assert weights(first) == weights(second)
    assert model_settings(first) == model_settings(second)
    for key, check in IN_RUN.items():
        assert get_key(first.recipe, key) != get_key(TINY, key), f"{key} is not changed"
        check(first)
    assert_tools_are_recorded_and_counted(first)


@pytest.mark.slow("oat", "openrlhf", "rl2", "verl")
def test_environments_behind_a_server_play_what_those_in_the_core_play(train, serve):
    """A server plays environments without tools, so this is a run of its own."""
    server = serve()
    keys = ("train.log_episodes=8", "eval.every=1", "eval.inside_episodes=4")
    status, output, run = train("behind", *keys, *server.keys)
    assert status == 0, output
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert not any(row["turns/masked"] for row in run.metrics()), "an episode failed"
    samples_as_the_core(run)
    assert server.metric("sessions_opened_total") >= 2 * 8 + 2 * 4
    assert server.forgotten(), "sessions are left on the server"


def assert_tools_are_recorded_and_counted(directory):
    """The recipe's tools are in every environment of the run, whatever process makes it."""
    rows = directory.info["environments"]
    assert [tool["name"] for row in rows for tool in row["tools"]] == ["python"] * len(rows)
    for line in [*directory.metrics(), *directory.evals()]:
        assert line["tool/calls"] >= 0 and "tool/failed" in line


def test_the_seed_of_the_recipe_decides(tiny):
    """Guards the test above: another seed plays other tokens in the same tasks' first turns."""
    seeds = set()
    for seed in (0, 1):
        recipe = load_recipe("guess-the-number-easy", "tiny", [f"seed={seed}"])
        tokenizer = AutoTokenizer.from_pretrained(model_path(tiny()))
        seeds.add(MachineFactory(recipe, tokenizer).train(0).request_seed)
    assert len(seeds) == 2
