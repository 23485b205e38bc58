"""Servers and connections that are lost: what is under way is typed, the rest is played on."""

from __future__ import annotations

import threading
import time

import faulty_env
import pytest
from playing import Actions, played, recipe_of, until_lost
from served import Relay

from gem_core.episodes.data import StopReason
from gem_core.episodes.rollout import play_batch
from gem_core.execution.server_client.connecting import ServerError
from gem_core.runs.tasks import MachineFactory


@pytest.mark.parametrize("kind", ["exit", "kill"])
def test_a_server_that_an_episode_ends_costs_the_calls_under_way(play_all, serve, impatient, kind):
    """The batch is whole; what was under way, and what finds no server afterwards, is typed."""
    server = serve()
    recipe = recipe_of(server.url)
    episodes = played(play_all, recipe, 8, Actions({2: ["a", kind]}))
    assert [episode.index for episode in episodes] == list(range(8))
    assert episodes[2].stop_reason is StopReason.ENV_ERROR
    where = f"{faulty_env.ID}, seed 2: ServerError: in step(), the connection to {server.url} was"
    assert episodes[2].error.startswith(where), episodes[2].error
    fine = played(play_all, recipe_of(None), 8)
    for episode, other in zip(episodes, fine, strict=True):
        if not episode.stop_reason.failed:
            assert episode == other
        else:
            assert episode.stop_reason is StopReason.ENV_ERROR
            assert "ServerError: " in episode.error and server.url in episode.error


ENVS = ({"id": faulty_env.ID, "kwargs": {"turns": 4}}, {"id": "game:Mastermind-v0-easy"})


def test_a_server_that_is_killed_between_two_turns_loses_no_episode(serve):
    """Its episodes go on on the other one; seed and actions give the state in which they were."""
    servers = [serve(), serve()]
    recipe = recipe_of([server.url for server in servers], *ENVS, limits={"max_turns": 6})

    def kill():
        servers[0].kill()
        until_lost(recipe, servers[0].url)

    episodes = played(play_batch, recipe, 12, Actions(before={2: kill}))
    inline = recipe_of(None, *ENVS, limits={"max_turns": 6})
    assert episodes == played(play_batch, inline, 12)
    assert servers[1].metric("sessions_opened_total") > 6
    servers[1].wait_for("sessions", 0)


def test_a_server_that_is_started_again_is_waited_for(serve):
    """Its address answers nobody for a while."""
    first, second = serve(), serve()
    relay = Relay(first.port)
    recipe = recipe_of(relay.url, *ENVS)

    def restart():
        first.kill()
        until_lost(recipe)
        threading.Timer(0.5, lambda: setattr(relay, "port", second.port)).start()

    episodes = played(play_batch, recipe, 6, Actions(before={2: restart}))
    assert episodes == played(play_batch, recipe_of(None, *ENVS), 6)
    relay.close()


def test_a_session_that_was_idle_for_too_long_is_opened_again(serve):
    server = serve(idle_s=2.0)
    recipe = recipe_of(server.url)
    wait = Actions(before={2: lambda: until_lost(recipe)})
    episodes = played(play_batch, recipe, 4, wait)
    assert server.metric('sessions_closed_total{kind="idle"}') >= 4
    assert episodes == played(play_batch, recipe_of(None), 4)


def test_without_replay_a_server_costs_its_episodes_and_not_the_batch(serve):
    servers = [serve(), serve()]
    recipe = recipe_of([server.url for server in servers], workers={"restart": "fail"})

    def kill():
        servers[0].kill()
        until_lost(recipe, servers[0].url)

    episodes = played(play_batch, recipe, 12, Actions(before={1: kill}))
    failed = [episode for episode in episodes if episode.stop_reason is StopReason.ENV_ERROR]
    assert len(failed) == 6
    assert all("its connection to the server was lost between" in e.error for e in failed)
    fine = played(play_batch, recipe_of(None), 12)
    assert all(a == b for a, b in zip(episodes, fine, strict=True) if a not in failed)


def test_a_dropped_connection_costs_the_calls_under_way_only(server, tmp_path):
    """Those of the even episodes: they wait in their second step until the connections are cut."""
    relay = Relay(server.port)
    recipe = recipe_of(relay.url)
    actions = {k: ["a", f"meet 5 {k} {tmp_path}"] for k in range(0, 8, 2)}
    steps = server.metric('requests_total{kind="step"}')

    def cut():
        while len(list(tmp_path.iterdir())) < 4:
            time.sleep(0.02)
        server.wait_for('requests_total{kind="step"}', steps + 8 + 4)
        time.sleep(0.3)  # the last answer is on its way
        relay.cut()
        (tmp_path / "over").touch()

    before = {1: lambda: threading.Thread(target=cut).start(), 2: lambda: until_lost(recipe)}
    episodes = played(play_batch, recipe, 8, Actions(actions, before))
    fine = played(play_batch, recipe_of(None), 8)
    for episode, other in zip(episodes, fine, strict=True):
        if episode.index % 2:
            assert episode == other
        else:
            assert episode.stop_reason is StopReason.ENV_ERROR
            assert "in step(), the connection to" in episode.error
    relay.close()


def test_a_reset_needs_no_repair(server):
    relay = Relay(server.port)
    recipe = recipe_of(relay.url, workers={"restart": "fail"})
    env = MachineFactory(recipe).train(0).env
    first = env.reset(seed=0)
    relay.cut()
    until_lost(recipe)
    assert env.reset(seed=0) == first
    relay.cut()
    until_lost(recipe)
    for _ in range(2):
        with pytest.raises(ServerError, match="state is lost: its connection"):
            env.step("a")
    assert env.reset(seed=0) == first
    env.close()
    relay.close()


def test_a_call_that_was_lost_is_not_repeated(server, tmp_path):
    relay = Relay(server.port)
    env = MachineFactory(recipe_of(relay.url)).train(0).env
    env.reset(seed=0)
    under_way = env.submit("step", f"meet 2 0 {tmp_path}")
    while not list(tmp_path.iterdir()):
        time.sleep(0.01)
    relay.cut()
    with pytest.raises(ServerError, match=r"in step\(\), the connection to http.* was lost"):
        under_way.result()
    (tmp_path / "over").touch()
    with pytest.raises(ServerError, match=r"state is lost: the connection was lost in step\(\)"):
        env.step("a")
    env.close()
    relay.close()
