"""What a server answers, refuses, counts and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import gem_core
from gem_core.env.checker import check_env
from gem_core.env.registration import _registry, spec
from gem_core.episodes.data import Completion, StopReason
from gem_core.episodes.rollout import play_many
from gem_core.errors import DataError, GemError
from gem_core.execution.server_client.client import RemoteEnv
from gem_core.execution.server_client.socket_client import ServerError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.environments.description import describe_environments, in_run
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.tasks import MachineFactory
from gem_server.limits import ServerLimits
from gem_server.program import make_program

GUESS = "game:GuessTheNumber-v0-easy"
SESSIONS = 1000
TOKEN = "right-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def watched() -> Iterator[set[int]]:
    from watched_env import OPEN

    gem_core.register("test:Watched-v0", "watched_env:WatchedEnv")
    gem_core.register("test:Quits-v0", "watched_env:WatchedEnv", quits=True)
    yield OPEN
    del _registry["test:Watched-v0"], _registry["test:Quits-v0"]
    OPEN.clear()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def until_open(watched: set[int], number: int) -> None:
    """Wait: a session is over before the thread that closes its environment has done so."""
    until = time.monotonic() + 30
    while len(watched) != number and time.monotonic() < until:
        time.sleep(0.02)
    assert len(watched) == number


def play(env: gem_core.Env, seed: int) -> list[Any]:
    """An episode with fixed guesses."""
    results: list[Any] = [env.reset(seed=seed)]
    for guess in (5, 2, 8, 9):
        results.append(env.step(f"\\boxed{{{guess}}}"))
        if results[-1][2]:
            break
    return results


def test_a_remote_environment_is_the_same_environment(start: Callable[..., Any]) -> None:
    server = start()
    here = gem_core.make(GUESS)
    with gem_core.make(f"remote:{GUESS}", url=server.url) as there:
        for seed in (0, 7, -3, 2**70):
            assert play(there, seed) == play(here, seed)
        assert there.get_state() == here.get_state()
    server.wait_for("sessions", 0)


def test_a_remote_environment_passes_the_checker(start: Callable[..., Any]) -> None:
    server = start()
    check_env(f"remote:{GUESS}", url=server.url, seeds=(0,), steps=6, skip=("process",))


def test_a_thousand_sessions_at_once(start: Callable[..., Any]) -> None:
    server = start()

    async def session(number: int, all_open: asyncio.Barrier) -> list[float]:
        url = f"ws://127.0.0.1:{server.port}/env/{GUESS}/ws"
        async with connect_async(url, compression=None, open_timeout=60, proxy=None) as socket:
            await ask(socket, "reset", seed=number)
            await all_open.wait()
            rewards = []
            done = False
            while not done:
                answer = await ask(socket, "step", text=f"\\boxed{{{1 + len(rewards)}}}")
                rewards.append(answer["reward"])
                done = answer["done"]
            await all_open.wait()
            return rewards

    async def ask(socket: Any, kind: str, **data: Any) -> dict[str, Any]:
        await socket.send(json.dumps({"type": kind, "data": data}))
        answer = json.loads(await socket.recv())
        assert answer["type"] == "observation", answer
        return dict(answer["data"])

    async def all_sessions() -> tuple[list[list[float]], float]:
        barrier = asyncio.Barrier(SESSIONS + 1)
        tasks = [asyncio.create_task(session(number, barrier)) for number in range(SESSIONS)]
        await barrier.wait()
        at_once = await asyncio.to_thread(server.metric, "sessions")
        await barrier.wait()
        return await asyncio.gather(*tasks), at_once

    rewards, at_once = asyncio.run(all_sessions())
    assert at_once == SESSIONS
    env = gem_core.make(GUESS)
    for number in range(0, SESSIONS, 50):
        env.reset(seed=number)
        for turn, reward in enumerate(rewards[number]):
            assert env.step(f"\\boxed{{{1 + turn}}}")[1] == reward
    server.wait_for("sessions", 0)
    assert server.metric("sessions_opened_total") == SESSIONS


def test_a_client_killed_in_its_episode_leaves_nothing(
    start: Callable[..., Any], watched: set[int]
) -> None:
    server = start()
    files = len(os.listdir("/proc/self/fd"))
    code = (
        "import gem_core, sys, time\n"
        f"envs = [gem_core.make('remote:test:Watched-v0', url={server.url!r}) for _ in range(20)]\n"
        "for env in envs: env.reset(seed=1); env.step('go')\n"
        "print('playing', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "playing\n"
    assert (server.metric("sessions"), len(watched)) == (20, 20)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    server.wait_for("sessions", 0)
    until_open(watched, 0)
    assert server.metric('sessions_closed_total{kind="disconnected"}') == 20
    assert len(os.listdir("/proc/self/fd")) <= files + 1


def test_a_call_that_hangs_costs_its_session_only(
    start: Callable[..., Any], watched: set[int]
) -> None:
    server = start(call_s=0.3)
    with (
        gem_core.make("remote:test:Watched-v0", url=server.url) as other,
        gem_core.make("remote:test:Watched-v0", url=server.url) as hung,
    ):
        other.reset(seed=0)
        hung.reset(seed=0)
        with pytest.raises(ServerError, match=r"within 0.3 s"):
            hung.step("hang")
        assert other.step("go")[0] == "go"
        assert server.metric("hung_calls") == 1
        assert server.metric("sessions") == 1


@pytest.mark.slow
def test_a_thousand_faults_are_a_thousand_episodes(
    start: Callable[..., Any], watched: set[int]
) -> None:
    """Exceptions, hung calls and dropped connections, and as many episodes without a fault."""
    kinds = ("fail", "hang", "drop", "fine")
    server = start(call_s=0.5)

    class Faulty:
        async def complete(self, request: Any) -> Completion:
            machine = request.machine
            kind = kinds[machine.index % 4]
            if kind == "drop" and machine.turn == 1:
                machine.env.unwrapped._client._socket.close()
            return Completion([], text=kind if machine.turn == 1 else "a")

    recipe = recipe_from_dict(
        {
            "name": "faults",
            "env": [{"id": "remote:test:Watched-v0", "kwargs": {"url": server.url}}],
            "limits": {"max_turns": 3, "turn_deadline_s": 20.0},
        }
    )
    factory = MachineFactory(recipe)
    machines = [factory.train(index) for index in range(1334)]
    episodes = asyncio.run(play_many(machines, Faulty(), concurrency=64))
    assert [episode.index for episode in episodes] == list(range(1334))
    for episode in episodes:
        fine = kinds[episode.index % 4] == "fine"
        expected = StopReason.TRUNCATED_TURNS if fine else StopReason.ENV_ERROR
        assert episode.stop_reason is expected, (episode.index, episode.error)
    faults = [episode for episode in episodes if episode.error]
    assert len(faults) == 1001
    until_open(watched, 0)


def test_an_exception_of_the_environment_is_told_and_the_session_lives(
    start: Callable[..., Any], watched: set[int]
) -> None:
    server = start()
    with gem_core.make("remote:test:Watched-v0", url=server.url) as env:
        env.reset(seed=0)
        with pytest.raises(ServerError, match="ZeroDivisionError: on request") as caught:
            env.step("fail")
        assert caught.value.code == "EXECUTION_ERROR"
        assert env.step("go")[0] == "go"


def test_an_exit_of_the_environment_is_told_and_the_session_lives(
    start: Callable[..., Any], watched: set[int]
) -> None:
    server = start()
    with gem_core.make("remote:test:Watched-v0", url=server.url) as env:
        env.reset(seed=0)
        for action, told in (("quit", "SystemExit: 3"), ("end", "Ends: on request")):
            with pytest.raises(ServerError, match=told):
                env.step(action)
        with pytest.raises(ServerError, match="Ends: no state"):
            env.get_state()
        assert env.step("go")[0] == "go"
    status, text = server.http("/sessions", b'{"environment": "test:Quits-v0"}')
    assert status == 400 and "cannot be made: SystemExit: 3 (watched_env.py:" in text


def test_sessions_whose_environment_cannot_be_closed_expire_all_the_same(
    start: Callable[..., Any], watched: set[int]
) -> None:
    """One that raised when it was closed ended what looks for idle sessions."""
    server = start(idle_s=0.5)
    for _ in range(2):
        session = open_by_http(server, "test:Watched-v0")
        assert server.http(f"/sessions/{session}/reset", b"{}")[0] == 200
        assert server.http(f"/sessions/{session}/step", b'{"text": "stay"}')[0] == 200
        server.wait_for("sessions", 0)
    until_open(watched, 0)


@pytest.mark.parametrize("given", [None, "wrong", "right-toke", "right-token2", ""])
def test_wrong_tokens_are_refused(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    server = start(token=TOKEN)
    headers = {} if given is None else {"Authorization": f"Bearer {given}"}
    for path in ("/metrics", "/environments", f"/env/{GUESS}/schema"):
        assert server.http(path, **headers)[0] == 401
    assert server.http("/sessions", b"{}", **headers)[0] == 401
    address = f"ws://127.0.0.1:{server.port}/env/{GUESS}/ws"
    refused = pytest.raises(InvalidStatus)
    with refused as caught, connect(address, additional_headers=headers, proxy=None):
        pass
    assert caught.value.response.status_code == 401
    monkeypatch.setenv("GEM_CORE_SERVER_TOKEN", given or "x")
    with pytest.raises(ServerError, match="GEM_CORE_SERVER_TOKEN"):
        RemoteEnv(GUESS, url=server.url).reset(seed=1)
    assert server.http("/health") == (200, '{"status":"healthy"}')
    assert server.metric('refused_total{kind="token"}', **BEARER) == 6
    assert server.metric("sessions_opened_total", **BEARER) == 0


def test_the_right_token_is_served(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(token=TOKEN)
    monkeypatch.setenv("GEM_CORE_SERVER_TOKEN", TOKEN)
    with RemoteEnv(GUESS, url=server.url) as env:
        assert play(env, 3) == play(gem_core.make(GUESS), 3)


def test_a_token_does_not_leave_the_machine_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEM_CORE_SERVER_TOKEN", TOKEN)
    with pytest.raises(GemError, match="unencrypted"):
        RemoteEnv(GUESS, url="http://192.0.2.1:8000").reset(seed=1)


def test_other_addresses_need_a_token() -> None:
    with pytest.raises(GemError, match="needs a token"):
        make_program(ServerLimits(), host="0.0.0.0")


def test_pages_of_a_browser_are_refused(start: Callable[..., Any]) -> None:
    server = start()
    address = f"ws://127.0.0.1:{server.port}/env/{GUESS}/ws"
    page = "http://a.example"
    with pytest.raises(InvalidStatus), connect(address, origin=page, proxy=None):
        pass
    assert server.http("/environments", Origin="http://a.example")[0] == 401
    assert server.http("/environments", Host="a.example")[0] == 401


def test_oversized_messages_are_refused(start: Callable[..., Any]) -> None:
    server = start(message_bytes=10_000)
    address = f"ws://127.0.0.1:{server.port}/env/{GUESS}/ws"
    with connect(address, compression=None, proxy=None) as client:
        client.send(json.dumps({"type": "step", "data": {"text": "x" * 20_000}}))
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(timeout=60)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009
    server.wait_for("sessions", 0)
    status, text = server.http("/sessions", b'{"environment": "' + b"x" * 20_000 + b'"}')
    assert (status, json.loads(text)["code"]) == (413, "TOO_BIG")
    with RemoteEnv(GUESS, url=server.url) as env:
        env.reset(seed=1)


def test_a_body_without_a_length_is_refused_when_it_is_too_big(start: Callable[..., Any]) -> None:
    server = start(message_bytes=10_000)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(
            f"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        raw.sendall(b"4e20\r\n" + b"x" * 20_000 + b"\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ("[]", "INVALID_JSON"),
        ('{"type": "fly"}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": []}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": "1"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"move": "1"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "1"}}', "EXECUTION_ERROR"),
        ('{"type": "load", "data": {"env": "Other"}}', "VALIDATION_ERROR"),
    ],
)
def test_malformed_messages_are_answered(start: Callable[..., Any], sent: str, code: str) -> None:
    server = start()
    address = f"ws://127.0.0.1:{server.port}/env/{GUESS}/ws"
    with connect(address, compression=None, proxy=None) as client:
        client.send(sent)
        answer = json.loads(client.recv(timeout=60))
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        client.send('{"type": "reset", "data": {"seed": 1}}')
        assert json.loads(client.recv(timeout=60))["type"] == "observation"


def test_bytes_end_the_session(start: Callable[..., Any]) -> None:
    server = start()
    with connect(f"ws://127.0.0.1:{server.port}/env/{GUESS}/ws", proxy=None) as client:
        client.send(b"\x00")
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=60)
    server.wait_for("sessions", 0)


def test_no_more_sessions_than_allowed(start: Callable[..., Any]) -> None:
    server = start(sessions=2)
    with RemoteEnv(GUESS, url=server.url) as one, RemoteEnv(GUESS, url=server.url) as two:
        one.reset(seed=1)
        two.reset(seed=1)
        with pytest.raises(ServerError, match="taken") as caught:
            RemoteEnv(GUESS, url=server.url).reset(seed=1)
        assert caught.value.code == "CAPACITY_REACHED"
    server.wait_for("sessions", 0)
    with RemoteEnv(GUESS, url=server.url) as three:
        three.reset(seed=1)


def test_idle_sessions_expire(start: Callable[..., Any], watched: set[int]) -> None:
    server = start(idle_s=2.0)
    session = open_by_http(server, "test:Watched-v0")
    env = gem_core.make("remote:test:Watched-v0", url=server.url)
    env.reset(seed=0)
    assert server.metric("sessions") == 2
    for _ in range(5):
        time.sleep(0.5)
        env.step("I am here")
    server.wait_for("sessions", 1)
    until_open(watched, 1)
    assert server.http(f"/sessions/{session}/step", b'{"text": "x"}')[0] == 404
    server.wait_for("sessions", 0)
    with pytest.raises(ServerError, match="lost"):
        env.step("too late")
    until_open(watched, 0)
    assert server.metric('sessions_closed_total{kind="idle"}') == 2


def open_by_http(server: Any, environment: str) -> str:
    body = json.dumps({"environment": environment}).encode()
    return str(json.loads(server.http("/sessions", body)[1])["session"])


def test_an_episode_by_http(start: Callable[..., Any]) -> None:
    server = start()
    session = open_by_http(server, GUESS)
    env = gem_core.make(GUESS)
    text, _ = env.reset(seed=4)
    status, answer = server.http(f"/sessions/{session}/reset", b'{"seed": 4}')
    assert (status, json.loads(answer)["observation"]["text"]) == (200, text)
    assert json.loads(answer)["metadata"]["fingerprint"] == env.spec.fingerprint()
    expected = env.step("\\boxed{5}")
    answer = server.http(f"/sessions/{session}/step", b'{"text": "\\\\boxed{5}"}')[1]
    result = json.loads(answer)
    assert (result["observation"]["text"], result["reward"]) == expected[:2]
    assert json.loads(server.http(f"/sessions/{session}/state", b"{}")[1])["step_count"] == 1
    assert server.http(f"/sessions/{session}/step", b'{"move": 1}')[0] == 400
    assert server.http(f"/sessions/{session}", method="DELETE")[0] == 200
    assert server.http(f"/sessions/{session}/step", b'{"text": "x"}')[0] == 404
    assert server.metric("sessions") == 0


def test_only_what_is_named_is_served(start: Callable[..., Any]) -> None:
    server = start(environments=("game:Guess*",))
    names = json.loads(server.http("/environments")[1])
    assert GUESS in names
    assert all(name.startswith("game:Guess") for name in names)
    for name in ("game:Sudoku-v0-easy", "remote:game:X", "guess"):
        with pytest.raises(ServerError, match="no environment"):
            RemoteEnv(name, url=server.url).reset(seed=1)
    with pytest.raises(ServerError, match="does not allow parameters"):
        RemoteEnv(GUESS, url=server.url, parameters={"max_number": 5}).reset(seed=1)


def test_parameters_where_they_are_allowed(start: Callable[..., Any]) -> None:
    server = start(parameters=True)
    parameters = {"max_number": 5, "max_turns": 2}
    with RemoteEnv(GUESS, url=server.url, parameters=parameters) as env:
        assert play(env, 1) == play(gem_core.make(GUESS, **parameters), 1)
    with pytest.raises(ServerError, match="Did you mean 'max_number'"):
        RemoteEnv(GUESS, url=server.url, parameters={"max_numbr": 5}).reset(seed=1)


def test_no_server_is_told() -> None:
    with pytest.raises(ServerError, match="No server at"):
        RemoteEnv(GUESS, url="http://127.0.0.1:9").reset(seed=1)
    with pytest.raises(GemError, match="no address"):
        RemoteEnv(GUESS, url="127.0.0.1:9").reset(seed=1)


def test_the_command_serves_until_it_is_told_to_end() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(port)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert f"127.0.0.1:{port}" in child.stderr.readline()
    env = RemoteEnv(GUESS, url=f"http://127.0.0.1:{port}")
    for _ in range(100):
        try:
            env.reset(seed=1)
            break
        except ServerError:
            time.sleep(0.05)
    assert env.step("\\boxed{1}")[0]
    child.terminate()
    assert child.wait(20) in (0, -signal.SIGTERM)
    child.stderr.close()
    with pytest.raises(ServerError, match="lost"):
        env.step("\\boxed{1}")


def test_a_run_records_what_the_server_plays_and_notices_another(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = f"env=[{{id='remote:{GUESS}', kwargs={{url='{start().url}'}}}}]"
    recipe = load_recipe("guess-the-number-easy", "tiny", [table])
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    (row,) = rows = describe_environments(recipe)
    assert row["provenance"] == {"server_fingerprint": spec(GUESS).fingerprint()}
    with in_run(run, rows):
        make_for_run(recipe.env[0], "env.0").close()
    other = {"fingerprint": "0123456789abcdef", "data_revision": None}
    monkeypatch.setattr("gem_server.messages.facts", lambda env: other)
    with in_run(run, rows), pytest.raises(DataError, match="server now says '0123456789abcdef'"):
        make_for_run(recipe.env[0], "env.0")
