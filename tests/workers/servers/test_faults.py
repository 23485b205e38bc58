"""Environments behind servers that hang, raise or exit: each episode ends with its reason."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import faulty_env
import pytest
from playing import Actions, played, recipe_of

from gem_core.episodes.data import StopReason
from gem_core.episodes.rollout import play_many
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.tasks import MachineFactory


def test_a_call_that_hangs_ends_with_its_deadline(play_all, serve):
    server = serve(call_s=4.0)
    recipe = recipe_of(server.url, limits={"turn_deadline_s": 2.0})
    began = time.monotonic()
    episodes = played(play_all, recipe, 6, Actions({1: ["hang"], 4: ["a", "hang"]}))
    assert time.monotonic() - began < 30
    fine = played(play_all, recipe_of(None), 6)
    for episode, other in zip(episodes, fine, strict=True):
        if episode.index in (1, 4):
            assert episode.stop_reason is StopReason.DEADLINE
            where = f"{faulty_env.ID}, seed {episode.seed}: "
            assert episode.error == f"{where}the environment did not answer within 2 s"
        else:
            assert episode == other
    server.wait_for("sessions", 0)  # those of the calls that hang: after the server's deadline


def test_the_deadline_of_the_server_is_a_deadline(play_all, serve):
    server = serve(call_s=0.5)
    (episode,) = played(play_all, recipe_of(server.url), 1, Actions({0: ["hang"]}))
    assert episode.stop_reason is StopReason.DEADLINE
    assert episode.error.endswith("the environment did not answer within 0.5 s")


def test_the_deadline_of_an_episode_holds(play_all, serve):
    server = serve(call_s=2.0)
    recipe = recipe_of(server.url, limits={"episode_deadline_s": 0.8})
    (episode,) = played(play_all, recipe, 1, Actions({0: ["a", "hang"]}))
    assert episode.stop_reason is StopReason.DEADLINE
    assert run_pools.run_sessions(recipe.workers).open == 0
    server.wait_for("sessions", 0)


def test_an_environment_that_exits_costs_its_episode_and_not_the_server(play_all, server):
    episodes = played(play_all, recipe_of(server.url), 4, Actions({1: ["a", "quit"]}))
    reasons = [episode.stop_reason for episode in episodes]
    assert reasons == [StopReason.TERMINATED, StopReason.ENV_ERROR, *[StopReason.TERMINATED] * 2]
    assert "SystemExit: 3 (faulty_env.py:" in episodes[1].error


@pytest.mark.slow
def test_a_thousand_faults_are_a_thousand_episodes(serve):
    """Each of them breaks in one of four ways in its second turn, or not; sixty-four at a time."""
    kinds = ("exception", "memory", "quit", "hang", "a")
    server = serve(call_s=5.0, threads=512)
    recipe = recipe_of(server.url, {"id": faulty_env.FAST}, limits={"turn_deadline_s": 3.0})
    factory = MachineFactory(recipe)
    actions = {k: ["a", kinds[k % 5]] for k in range(1000)}
    machines = [factory.train(index) for index in range(1000)]
    episodes = asyncio.run(play_many(machines, Actions(actions), concurrency=64))
    assert [episode.index for episode in episodes] == list(range(1000))
    expected = {"hang": StopReason.DEADLINE, "a": StopReason.TERMINATED}
    assert Counter((kinds[e.index % 5], e.stop_reason) for e in episodes) == {
        (kind, expected.get(kind, StopReason.ENV_ERROR)): 200 for kind in kinds
    }
    assert run_pools.run_sessions(recipe.workers).open == 0
    server.wait_for("sessions", 0)
