"""Episodes whose environments live behind servers are those of this process."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading

import faulty_env
import pytest
from playing import GUESS, Actions, eventually, played, recipe_of

from gem_core.episodes.data import StopReason
from gem_core.episodes.rollout import play_batch, play_many
from gem_core.errors import GemError
from gem_core.execution.workers import WorkerPoolError
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.tasks import MachineFactory


def test_the_same_episodes_as_in_this_process(play_all, server):
    envs = (
        {"id": faulty_env.ID, "kwargs": {"turns": 4}},
        {"id": faulty_env.ID, "kwargs": {"slow": True}, "max_turns": 2},
        {"id": "game:Mastermind-v0-easy", "max_turns": 5},
        {"id": GUESS},
    )
    actions = {3: ["a", "exception"], 5: ["memory"]}
    runs = [
        played(play_all, recipe_of(address, *envs), 32, Actions(actions))
        for address in (None, server.url, server.url.replace("http", "ws"))
    ]
    assert runs[0] == runs[1] == runs[2]
    reasons = {episode.stop_reason for episode in runs[0]}
    expected = {StopReason.TERMINATED, StopReason.TRUNCATED_TURNS, StopReason.ENV_ERROR}
    assert reasons >= expected
    server.wait_for("sessions", 0)


def test_calls_of_many_episodes_run_at_the_same_time_in_one_thread(play_all, server, tmp_path):
    """Each of them waits in its step until all the others are in theirs."""
    number = 24
    threads = threading.active_count()
    seen = []
    actions = {k: ["a", f"meet {number} {k} {tmp_path}"] for k in range(number)}
    recipe = recipe_of(server.url)

    class Watching(Actions):
        def one(self, request):
            seen.append(threading.active_count())
            return super().one(request)

    episodes = played(play_all, recipe, number, Watching(actions))
    assert {episode.stop_reason for episode in episodes} == {StopReason.TERMINATED}
    assert max(seen) <= threads + 1


def test_more_sessions_than_the_process_may_have_files(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        recipe = recipe_of(server.url, {"id": GUESS}, limits={"max_turns": 2})
        episodes = played(play_batch, recipe, 300)
        assert [episode.error for episode in episodes] == [None] * 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_full_server_is_waited_for(play_all, serve):
    server = serve(sessions=3)
    episodes = played(play_all, recipe_of(server.url), 3)
    assert episodes == played(play_all, recipe_of(None), 3)
    machines = MachineFactory(recipe_of(server.url))
    many = asyncio.run(play_many([machines.train(k) for k in range(12)], Actions()))
    assert {episode.stop_reason for episode in many} == {StopReason.TERMINATED}


def test_several_servers_share_the_sessions(serve):
    servers = [serve(), serve(), serve()]
    played(play_batch, recipe_of([server.url for server in servers]), 12)
    assert [server.metric("sessions_opened_total") for server in servers] == [4, 4, 4]


def test_state_travels_as_that_of_the_environment_itself(server):
    here = MachineFactory(recipe_of(None)).train(0).env
    there, copy = (MachineFactory(recipe_of(server.url)).train(0).env for _ in range(2))
    assert there.reset(seed=5) == here.reset(seed=5)
    assert there.step("a") == here.step("a")
    assert there.get_state() == here.get_state()
    copy.set_state(there.get_state())
    assert copy.step("b") == there.step("b") == here.step("b")
    with pytest.raises(GemError, match="make the environment here"):
        there.random_action(None)
    there.close()
    copy.close()
    with pytest.raises(GemError, match="closed"):
        there.step("a")


def test_a_message_that_is_too_big_is_told(server, serve):
    small = serve(message_bytes=2000)
    (episode,) = played(play_batch, recipe_of(small.url), 1, Actions({0: ["a", "b" * 4000]}))
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert "the message was too big; --message-bytes of the server" in episode.error


def test_a_cancelled_rollout_ends_its_sessions(serve):
    server = serve(call_s=3.0)
    recipe = recipe_of(server.url)
    factory = MachineFactory(recipe)
    machines = [factory.train(k) for k in range(4)]

    async def given_up():
        task = asyncio.ensure_future(play_many(machines, Actions({0: ["hang"]})))
        while not all(machine.done for machine in machines[1:]):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(given_up())
    assert machines[0].episode.stop_reason is StopReason.ABORTED
    server.wait_for("sessions", 0)
    eventually(lambda: run_pools.run_sessions(recipe.workers).open == 0)


def test_a_pool_that_is_closed_ends_its_calls_and_its_sessions(serve):
    server = serve(call_s=3.0)
    recipe = recipe_of(server.url)
    factory = MachineFactory(recipe)
    envs = [factory.train(k).env for k in range(3)]
    for env in envs:
        env.reset(seed=0)
    under_way = envs[0].submit("step", "nap")
    run_pools.close_run_pools(None)
    with pytest.raises(WorkerPoolError, match="were closed"):
        under_way.result()
    with pytest.raises(WorkerPoolError, match="make a new pool"):
        envs[1].step("a")
    envs[1].close()
    server.wait_for("sessions", 0)


def test_an_environment_that_nobody_refers_to_ends_its_session(server):
    env = MachineFactory(recipe_of(server.url)).train(0).env
    env.reset(seed=0)
    assert server.metric("sessions") == 1
    del env
    server.wait_for("sessions", 0)


def test_a_forked_child_has_sessions_of_its_own(server):
    recipe = recipe_of(server.url)
    env = MachineFactory(recipe).train(0).env
    env.reset(seed=0)
    child = os.fork()
    if child == 0:
        (episode,) = played(play_batch, recipe, 1)
        os._exit(0 if episode.stop_reason is StopReason.TERMINATED else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert env.step("a")[0].startswith("a: ")
    env.close()


TRAINER = """
import sys
sys.path.insert(0, {folder!r})
import faulty_env
from gem_core.env.registration import register
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory
register(faulty_env.ID, "faulty_env:Faulty")
workers = {{"backend": "server", "address": {url!r}}}
recipe = recipe_from_dict({{"name": "w", "env": [{{"id": faulty_env.ID}}], "workers": workers}})
factory = MachineFactory(recipe)
envs = [factory.train(k).env for k in range(20)]
for env in envs:
    env.reset(seed=1)
print("playing", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_nothing_is_left_on_the_server_when_the_trainer_ends(server, end):
    code = TRAINER.format(folder=os.path.dirname(faulty_env.__file__), url=server.url)
    command = [sys.executable, "-c", code]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "playing\n"
    assert server.metric("sessions") == 20
    if end == "kill":
        child.kill()
    child.communicate(timeout=30)
    assert (child.returncode == 0) == (end == "exit")
    server.wait_for("sessions", 0)
