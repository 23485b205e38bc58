"""Runs of TRL whose environments live behind a server."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.errors import GemError, RecipeError
from gem_core.execution.server_client import opening
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.description import in_run
from gem_core.runs.resolved import resolve_run
from gem_core.training.experiment import run_experiment
from gem_trl import launch

TOKEN = "GEM_CORE_SERVER_TOKEN"
SMALL = ("train.steps=2", "eval.every=2", "eval.inside_episodes=4", "train.log_episodes=8")


@pytest.fixture
def train(make_recipe, tmp_path):
    """``train(name, *overrides)``: a whole run in this process; returns its directory."""

    def start(name, *overrides):
        recipe = make_recipe(*SMALL, *overrides)
        run = RunDir.create(tmp_path / name, recipe, "trl")
        with in_run(run):
            launch.run(resolve_run(recipe, "trl"), run)
        return run

    return start


def played(run):
    episodes = []
    for tags, episode in run.episodes():
        episode.seconds.clear()
        episodes.append((tags["split"], tags["step"], episode))
    return episodes


def test_a_run_behind_a_server_is_the_run_of_this_process(serve, train):
    server = serve()
    here = train("here")
    there = train("there", *server.keys)
    assert played(there) == played(here) and len(played(here)) >= 16
    assert there.info["environments"] == here.info["environments"]
    before, after = (
        AutoModelForCausalLM.from_pretrained(run.model).state_dict() for run in (here, there)
    )
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert server.metric("sessions_opened_total") >= 2 * 8 + 4
    assert server.forgotten()


def test_a_server_that_is_gone_stops_the_run_and_says_so(serve, make_recipe, monkeypatch, tmp_path):
    server = serve()
    monkeypatch.setattr(opening, "_PATIENCE", dict.fromkeys(opening._PATIENCE, 0.0))
    recipe = make_recipe(*SMALL, *server.keys)
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    resolved = resolve_run(recipe, "trl")
    with in_run(run):
        server.end()
        with pytest.raises(GemError, match=r"100% of the batch's 8 episodes failed.*No server at"):
            launch.run(resolved, run)


def test_a_wrong_token_is_refused_before_anything_is_made(
    serve, make_recipe, monkeypatch, tmp_path
):
    server = serve()
    monkeypatch.setenv(TOKEN, "another")
    recipe = make_recipe(*SMALL, *server.keys)
    with pytest.raises(RecipeError, match=f"is {TOKEN} set to its token"):
        run_experiment(recipe, "trl", tmp_path / "run")
    assert not (tmp_path / "run").exists()
