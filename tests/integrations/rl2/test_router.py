"""Requests through a router: a scripted one that fails, and sglang's own before CPU engines."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_rl2 import rollout
from gem_rl2.cpu.stand_ins import ROUTER_VARIABLE
from gem_rl2.rollout import EnginePolicy

REQUEST = Request([5, 6, 7], 4, machine=None)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(rollout, "PAUSE_S", 0.01)
    monkeypatch.setattr(rollout, "TRIES", 5)


@pytest.fixture
def ask(engine):
    """``ask(reply)`` -> the completion, and the policy that asked for it."""

    def run(reply):
        async def one(url):
            async with aiohttp.ClientSession() as session:
                policy = EnginePolicy(session, url, {}, [1])
                return await policy.complete(REQUEST), policy

        with engine(reply) as (url, _):
            return asyncio.run(one(url))

    return run


def answer(number, body):
    sampled = [[-0.5, 9, None], [-0.25, 1, None]]
    meta = {"output_token_logprobs": sampled, "finish_reason": {"type": "stop"}}
    return {"text": "", "meta_info": meta}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_router_without_a_ready_engine_is_asked_again(ask, status):
    def reply(number, body):
        return web.Response(status=status, text="no") if number < 3 else answer(number, body)

    completion, policy = ask(reply)
    assert completion.token_ids == [9, 1] and completion.logprobs == [-0.5, -0.25]
    assert policy.retried == 3


def test_a_lost_connection_is_replaced():
    """The first two connections end in the middle of an answer."""
    body = json.dumps(answer(0, None)).encode()
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole if len(connections) > 2 else whole[:-20])
        await writer.drain()
        writer.close()

    async def one():
        async with (
            await asyncio.start_server(serve, "127.0.0.1", 0) as server,
            aiohttp.ClientSession() as session,
        ):
            port = server.sockets[0].getsockname()[1]
            policy = EnginePolicy(session, f"http://127.0.0.1:{port}", {}, [1])
            return await policy.complete(REQUEST), policy.retried

    completion, retried = asyncio.run(asyncio.wait_for(one(), 30))
    assert completion.token_ids == [9, 1] and retried == 2


def test_it_gives_up_and_names_the_last_problem(ask):
    with pytest.raises(GemError, match=r"No engine answers.*503: all are down"):
        ask(lambda number, body: web.Response(status=503, text="all are down"))


def test_what_cannot_get_better_is_not_repeated(ask):
    asked = []

    def refuse(number, body):
        asked.append(number)
        return web.Response(status=400, text="too long")

    with pytest.raises(GemError, match="400: too long"):
        ask(refuse)
    assert asked == [0]


def test_nothing_listens(monkeypatch):
    async def one():
        async with aiohttp.ClientSession() as session:
            await EnginePolicy(session, "http://127.0.0.1:9", {}, [1]).complete(REQUEST)

    with pytest.raises(GemError, match=r"No engine answers.*ClientConnectorError"):
        asyncio.run(one())


def test_a_run_behind_the_router_of_sglang(tmp_path):
    """sglang-router answers 503 until its health checks have found the engines."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
    command += ["--profile", "tiny", "--trainer", "rl2", "--run", str(path)]
    for key in ("batch.episodes=8", "train.steps=2", "eval.episodes=0", "algorithm.epochs=1"):
        command += ["--set", key]
    environment = {**os.environ, ROUTER_VARIABLE: "sglang"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    assert len(RunDir(path).metrics()) == 2
    assert "started processing request" in (path / "rl2.log").read_text(), "another router"
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [c for c in commands if str(path).encode() in c], "a process was left behind"
