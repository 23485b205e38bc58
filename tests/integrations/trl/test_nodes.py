"""A run on two machines, each a torchrun of its own over the loopback: one command on each."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys

import pytest

from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import TRAINED_FILE, RunDir
from gem_core.training.experiment import run_experiment
from gem_trl import launch, nodes

TWO = ("hardware.nodes=2", "train.steps=2")
SAYS = "Start this on the other machine: "


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_without_an_address_nothing_is_done(make_recipe, tmp_path, monkeypatch):
    monkeypatch.delenv(nodes.MEET_VARIABLE, raising=False)
    recipe = make_recipe(*TWO)
    for address in (None, "", "first", "first:", ":29500", "first:29500 --x", "http://first:1"):
        if address is not None:
            monkeypatch.setenv(nodes.MEET_VARIABLE, address)
        for refused in (
            lambda: run_experiment(recipe, "trl", tmp_path / "run"),
            lambda: launch.prepare(recipe),
        ):
            with pytest.raises(RecipeError, match=r"nodes = 2: .*GEM_TRL_RENDEZVOUS") as caught:
                refused()
            assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_command_on_each_machine_ends_in_a_result(make_recipe, tmp_path):
    recipe = make_recipe(*TWO)
    path = tmp_path / "run"
    program = (
        "import sys\n"
        "from gem_core.runs.recipe.load import recipe_from_dict\n"
        "from gem_core.training.experiment import run_experiment\n"
        "import json\n"
        "run_experiment(recipe_from_dict(json.loads(sys.argv[1])), 'trl', sys.argv[2])\n"
    )
    command = [sys.executable, "-c", program, json.dumps(recipe.to_dict()), str(path)]
    environment = {**os.environ, nodes.MEET_VARIABLE: f"127.0.0.1:{free_port()}"}
    first = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        said = next((line for line in first.stdout if line.startswith(SAYS)), None)
        assert said is not None, "it ended before it said what to start"
        assert not (path / "result.json").exists()
        other = subprocess.run(shlex.split(said.removeprefix(SAYS)), timeout=600)
        first.stdout.read()
        assert (first.wait(600), other.returncode) == (0, 0)
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    run = RunDir(path)
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert run.result["before"] and run.result["after"] and run.result["steps"] == 2
    require_only_the_evaluation_again(recipe, run)


def require_only_the_evaluation_again(recipe, run):
    """A session that ended in the evaluation after training is resumed without the others."""
    result = run.result
    (run.path / "result.json").unlink()
    lines = [json.loads(line) for line in (run.path / "evals.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["when"] != "after"]
    (run.path / "evals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert nodes.MEET_VARIABLE not in os.environ  # it would start processes that nobody meets
    resumed = run_experiment(recipe, "trl", run.path, "resume")
    again = resumed.result
    assert timeless(again["after"]) == timeless(result["after"])
    assert (run.path / TRAINED_FILE).exists()


def timeless(metrics):
    return {k: v for k, v in metrics.items() if not k.startswith("time/") and k != "seconds"}
