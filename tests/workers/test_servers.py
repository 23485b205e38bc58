"""Episodes whose environments live behind servers are those of this process."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter

import faulty_env
import pytest
from served import TOKEN, Relay, Served, Unavailable

from gem_core.episodes.data import Completion, StopReason
from gem_core.episodes.rollout import play_batch, play_many
from gem_core.errors import DataError, GemError, MissingDependencyError, RecipeError
from gem_core.server import opening
from gem_core.server.connecting import ServerError
from gem_core.training import run_workers
from gem_core.training.recipe import recipe_from_dict
from gem_core.training.run_data import describe_environments, in_run, make_for_run
from gem_core.training.runs import RunDir
from gem_core.training.task_overlap import task_overlap
from gem_core.training.tasks import MachineFactory
from gem_core.workers import WorkerPoolError

GUESS = "game:GuessTheNumber-v0-easy"
SECRET = "a-secret-token"


class Actions:
    """Plays ``actions[index][turn]``, ``"a"`` where there is none; ``before[turn]`` comes first."""

    def __init__(self, actions=None, before=None):
        self.actions = actions or {}
        self.before = dict(before or {})

    def one(self, request):
        machine = request.machine
        actions = self.actions.get(machine.index, [])
        text = actions[machine.turn] if machine.turn < len(actions) else "a"
        return Completion([], text=text)

    def complete_batch(self, requests):
        self.before.pop(requests[0].machine.turn, lambda: None)()
        return [self.one(request) for request in requests]

    async def complete(self, request):
        return self.one(request)


@pytest.fixture
def serve(monkeypatch):
    """``serve(token=None, turns=None, **limits)``: servers that end with the test."""
    monkeypatch.delenv(TOKEN, raising=False)
    running = []

    def start(*arguments, **named):
        running.append(Served(*arguments, **named))
        return running[-1]

    yield start
    run_workers.close_run_pools(None)
    for server in running:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture(scope="module")
def shared():
    """A server for the tests that leave it as it is."""
    server = Served()
    yield server
    server.kill()


@pytest.fixture
def server(shared, monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    yield shared
    run_workers.close_run_pools(None)
    shared.wait_for("sessions", 0)


@pytest.fixture(params=["play_many", "play_batch"])
def play_all(request):
    """Both ways of playing many machines."""
    if request.param == "play_batch":
        return play_batch
    return lambda machines, policy: asyncio.run(play_many(machines, policy))


@pytest.fixture
def impatient(monkeypatch):
    """Servers that cannot be reached are given up at once."""
    patience = dict.fromkeys(opening._PATIENCE, 0.0)
    monkeypatch.setattr(opening, "_PATIENCE", patience)


def recipe_of(address, *envs, **tables):
    workers = {"backend": "inline"}
    if address is not None:
        workers = {"backend": "server", "address": address, **tables.pop("workers", {})}
    envs = envs or ({"id": faulty_env.ID},)
    return recipe_from_dict({"name": "w", "env": list(envs), "workers": workers, **tables})


def until_lost(recipe, address=None):
    """Wait until this process knows that its connections to a server are lost."""
    sessions = list(run_workers.run_sessions(recipe.workers)._sessions)
    clients = [session._client for session in sessions if session._client is not None]
    until = time.monotonic() + 20
    while any(client.is_open for client in clients if address in (None, client.address)):
        assert time.monotonic() < until
        time.sleep(0.01)


def played(play, recipe, count, policy=None):
    factory = MachineFactory(recipe)
    episodes = play([factory.train(index) for index in range(count)], policy or Actions())
    for episode in episodes:
        assert episode.seconds["env"] >= 0
        episode.seconds.clear()
    return episodes


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
    server = serve(idle_s=0.3)

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
    assert run_workers.run_sessions(recipe.workers).open == 0
    server.wait_for("sessions", 0)


def test_an_environment_that_exits_costs_its_episode_and_not_the_server(play_all, server):
    episodes = played(play_all, recipe_of(server.url), 4, Actions({1: ["a", "quit"]}))
    reasons = [episode.stop_reason for episode in episodes]
    assert reasons == [StopReason.TERMINATED, StopReason.ENV_ERROR, *[StopReason.TERMINATED] * 2]
    assert episodes[1].error.endswith("SystemExit: 3")


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
    assert run_workers.run_sessions(recipe.workers).open == 0
    server.wait_for("sessions", 0)


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
    assert run_workers.run_sessions(recipe.workers).open == 0
    server.wait_for("sessions", 0)


def test_a_pool_that_is_closed_ends_its_calls_and_its_sessions(serve):
    server = serve(call_s=3.0)
    recipe = recipe_of(server.url)
    factory = MachineFactory(recipe)
    envs = [factory.train(k).env for k in range(3)]
    for env in envs:
        env.reset(seed=0)
    under_way = envs[0].submit("step", "nap")
    run_workers.close_run_pools(None)
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
from gem_core.registration import register
from gem_core.training.recipe import recipe_from_dict
from gem_core.training.tasks import MachineFactory
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


# -- before a run --------------------------------------------------------------------------------


def test_a_run_records_what_the_server_plays(serve, tmp_path):
    data = tmp_path / "rows.jsonl"
    data.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": str(data), "part": "all"}}
    server = serve()
    relay = Relay(server.port)
    recipe = recipe_of(relay.url, table, eval={"episodes": 0})
    rows = describe_environments(recipe)
    assert rows == describe_environments(recipe_of(None, table, eval={"episodes": 0}))
    assert rows[0]["items"] == 1 and not rows[0]["sample"] and rows[0]["data_revision"]
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with in_run(run, rows):
        env = MachineFactory(run.recipe).train(0).env
        env.reset(seed=0)
        assert env.spec.fingerprint() == rows[0]["fingerprint"]
        env.close()
        make_for_run(recipe.env[0], "env.0").close()  # what is made here is compared with it
        server.wait_for("sessions", 0)
        server.kill()
        data.write_text('{"problem": "1 + 2?", "answer": "3"}\n')
        relay.port = serve().port  # another server at the same address
        (episode,) = play_batch([MachineFactory(run.recipe).train(0)], Actions())
        assert episode.stop_reason is StopReason.ENV_ERROR
        assert "DataError: qa:HotpotQA: " in episode.error
    with pytest.raises(DataError, match="put the same data in place, or start a new run"):
        describe_environments(recipe, run)
    relay.close()


def test_a_server_with_another_environment_is_refused(serve):
    server = serve(turns=7)
    with pytest.raises(DataError, match="another environment under this id"):
        describe_environments(recipe_of(server.url))
    (episode,) = played(play_batch, recipe_of(server.url), 1)
    assert "another environment under this id" in episode.error
    server.wait_for("sessions", 0)


def test_a_sample_that_nobody_asked_for_is_refused(server):
    """The server has no connection to the Hub, so it falls back to the sample."""
    with pytest.raises(DataError, match="only the small built-in sample"):
        describe_environments(recipe_of(server.url, {"id": "math:GSM8K"}))
    sample = {"id": "math:GSM8K", "kwargs": {"dataset": "sample"}}
    assert describe_environments(recipe_of(server.url, sample))[0]["sample"]


def test_servers_with_different_data_are_refused(serve, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(f'{{"problem": "{name}?", "answer": "2"}}\n')
    one, two = (serve(folder=tmp_path / name) for name in ("one", "two"))
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": "rows.jsonl", "part": "all"}}
    assert describe_environments(recipe_of([one.url], table))[0]["items"] == 1
    with pytest.raises(DataError, match=r"the servers of workers.address differ: .* same data"):
        describe_environments(recipe_of([one.url, two.url], table))


@pytest.mark.parametrize("given", [None, "wrong"])
def test_a_wrong_token_is_refused_before_the_run(serve, monkeypatch, given):
    server = serve(token=SECRET)
    if given is not None:
        monkeypatch.setenv(TOKEN, given)
    with pytest.raises(RecipeError, match=f"401.*is {TOKEN} set to its token"):
        describe_environments(recipe_of(server.url))


def test_the_token_is_in_no_message_log_or_record(serve, monkeypatch, caplog, tmp_path):
    server = serve(token=SECRET)
    monkeypatch.setenv(TOKEN, SECRET)
    caplog.set_level(logging.DEBUG)
    recipe = recipe_of(server.url)
    with in_run(RunDir.create(tmp_path / "run", recipe, "trl")):
        (episode,) = played(play_batch, recipe, 1)
    assert episode.stop_reason is StopReason.TERMINATED
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert written and not any(SECRET in text for text in [*written, caplog.text])


def test_what_cannot_be_served_is_refused_before_the_run(serve, impatient):
    server = serve(environments=["game:Guess*"], parameters=False)
    with pytest.raises(RecipeError, match="no environment 'faulty:Env-v0' here; --environments"):
        describe_environments(recipe_of(server.url))
    table = {"id": GUESS, "kwargs": {"max_turns": 3}}
    with pytest.raises(RecipeError, match="start it with --parameters"):
        describe_environments(recipe_of(server.url, table))
    server.kill()
    with pytest.raises(RecipeError, match=r"No server at .*\. Start it \(gem-core serve\)"):
        describe_environments(recipe_of(server.url, {"id": GUESS}))
    with pytest.raises(RecipeError, match="No server at"):
        describe_environments(recipe_of([serve().url, server.url], {"id": GUESS}))


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(MissingDependencyError, match=r"pip install \"gem-core\[server\]\""):
        describe_environments(recipe_of("http://127.0.0.1:9"))


def test_what_cannot_be_made_here_is_played_and_not_compared(server, tmp_path):
    """The tasks of evaluation and training are counted here where the environment is here."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": str(data), "part": "all"}}
    recipe = recipe_of(server.url, table, eval={"episodes": 2})
    assert task_overlap(recipe)["distinct"] == 1
    there = {"id": "math:GSM8K", "kwargs": {"dataset": str(tmp_path / "there.jsonl")}}
    assert task_overlap(recipe_of(server.url, there)) is None
    with pytest.raises(DataError):
        task_overlap(recipe_of(None, there))


def test_a_proxy_without_its_server_is_told(impatient):
    proxy = Unavailable()
    with pytest.raises(RecipeError, match="503"):
        describe_environments(recipe_of(proxy.url))
    (episode,) = played(play_batch, recipe_of(proxy.url), 1)
    assert episode.stop_reason is StopReason.ENV_ERROR and "503" in episode.error
    run_workers.close_run_pools(None)
    proxy.close()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"address": None}, r"workers.address: .* start one \(gem-core serve\) and set"),
        ({"address": []}, "workers.address: .* needs the address of a server"),
        ({"address": "127.0.0.1:8000"}, "workers.address: .* is no address"),
        ({"address": "http://127.0.0.1:x"}, "workers.address: .* is no address"),
        ({"address": "http://me:secret@127.0.0.1:80"}, "workers.address: .* GEM_CORE_SERVER_TOKEN"),
        ({"number": 2}, "workers.number: a server has no worker processes of this run; leave it"),
        ({"max_restarts": 5}, "workers.max_restarts: a run does not restart servers; leave it out"),
        ({"backend": "ray", "address": ["a:1", "b:1"]}, "workers.address: several .* name one"),
    ],
)
def test_impossible_combinations_are_refused_at_load(table, message):
    workers = {"backend": "server", "address": "http://127.0.0.1:8000", **table}
    with pytest.raises(RecipeError, match=message) as caught:
        recipe_from_dict({"name": "w", "env": [{"id": GUESS}], "workers": workers})
    assert "secret" not in str(caught.value)


def test_tools_are_refused_at_load():
    tools = {"id": "qa:Auction", "tools": ["search"]}
    with pytest.raises(RecipeError, match=r"env.0.tools: .* workers.backend = \"process\""):
        recipe_of("http://127.0.0.1:8000", tools)
    with pytest.raises(RecipeError, match=r"eval.env.0.tools: "):
        recipe_of("http://127.0.0.1:8000", eval={"env": [tools]})


def test_a_token_does_not_leave_the_machine_unencrypted(monkeypatch):
    monkeypatch.setenv(TOKEN, SECRET)
    with pytest.raises(GemError, match="unencrypted"):
        describe_environments(recipe_of("http://192.0.2.1:8000"))
