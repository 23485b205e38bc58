"""The policy of an endpoint: what it sends, what it makes of any answer."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

import gem_core
from gem_core.episodes.context import Context, get_template
from gem_core.episodes.data import FinishReason, StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import Request, play
from gem_core.errors import GemError
from gem_core.policies.endpoint.http_client import HttpClient
from gem_core.policies.endpoint.policy import EndpointConfig, EndpointPolicy
from gem_core.policies.endpoint.retries import Pacer, RetryConfig, retry_after
from gem_core.policies.endpoint.tool_calls import as_text
from gem_core.policies.endpoint.usage import Price, read_price
from gem_core.policies.failures import KINDS, EndpointError, EpisodeOver, ItemError

from .server import BAD, CUT, GARBAGE, GOOD, Server, chat, http

ENV = "game:GuessTheNumber-v0-easy"
FAST = RetryConfig(attempts=3, first_pause_s=0.001, longest_pause_s=0.05)


def machine(env_id=ENV, template="no", **limits):
    env = gem_core.make(env_id)
    return EpisodeMachine(env, Context(get_template(template)), Limits(**limits), seed=-1, index=7)


def config_of(server, **options):
    options = {"model": "m", "retry": FAST, "timeout_s": 5.0, **options}
    return EndpointConfig(base_url=server.url, **options)


def ask(server, first=None, *, sampling=None, key=None, stop=None, price=None, **options):
    """One completion; return it and what it used."""
    first = first or machine()
    if not first.turn and first.shown == ("", {}):
        first.start()
    policy = EndpointPolicy(
        config_of(server, **options), sampling or {}, key=key, stop=stop, price=price
    )

    async def complete():
        try:
            return await policy.complete(Request([], first.max_tokens, first))
        finally:
            await policy.close()

    try:
        return asyncio.run(complete()), policy.finish(7)
    except BaseException as error:
        error.usage = policy.finish(7)
        raise


def test_a_request_of_chat_has_the_messages_and_the_settings():
    with Server(lambda n, body: [GOOD]) as server:
        done, usage = ask(
            server,
            machine(max_tokens_per_turn=9),
            sampling={"temperature": 0.5},
            key="k1",
            system="Be brief.",
            tokens_key="max_completion_tokens",
            body={"reasoning_effort": "low"},
            send_seeds=True,
            price=Price(input=2.0, output=10.0, cached_input=1.0),
        )
    body = server.bodies[0]
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert "from 1 to 10" in body["messages"][1]["content"]
    assert body["max_completion_tokens"] == 9 and "max_tokens" not in body
    assert (body["temperature"], body["reasoning_effort"], body["model"]) == (0.5, "low", "m")
    assert 0 <= body["seed"] < 2**63
    assert "authorization: Bearer k1\r\n" in server.heads[0]
    assert server.heads[0].startswith("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert (done.text, done.finish_reason) == ("\\boxed{5}", FinishReason.STOP)
    assert (usage.requests, usage.retries, usage.prompt_tokens) == (1, 0, 10)
    assert (usage.cached_tokens, usage.completion_tokens, usage.reasoning_tokens) == (6, 4, 1)
    assert usage.cost == pytest.approx((4 * 2.0 + 6 * 1.0 + 4 * 10.0) / 1e6)


def test_a_request_of_completions_has_the_template_and_its_end():
    answer = {"choices": [{"text": "\\boxed{1}", "finish_reason": "length"}]}
    with Server(lambda n, body: [http(200, answer)]) as server:
        first = machine(template="qwen3_game")
        done, usage = ask(server, first, api="completions", stop=["<|im_end|>"])
    body = server.bodies[0]
    assert body["prompt"] == first.prompt_text
    assert body["prompt"].startswith("<|im_start|>user\n") and "seed" not in body
    assert body["stop"] == ["<|im_end|>"]
    assert (done.text, done.finish_reason) == ("\\boxed{1}", FinishReason.LENGTH)
    assert (usage.requests, usage.prompt_tokens, usage.cost) == (1, 0, None)


@pytest.mark.parametrize("kind", BAD)
def test_each_failure_has_its_kind(kind):
    options = {"timeout_s": 0.3} if kind == "timeout" else {}
    with Server(lambda n, body: BAD[kind]) as server, pytest.raises(ItemError) as raised:
        ask(server, **options)
    attempts = 1 if kind == "refused" else 3
    assert raised.value.kind == kind in KINDS
    assert len(server.bodies) == attempts
    assert (raised.value.usage.requests, raised.value.usage.retries) == (attempts, attempts - 1)


@pytest.mark.parametrize("reply", GARBAGE)
def test_garbage_is_a_typed_error_and_is_asked_again(reply):
    with Server(lambda n, body: reply if n == 0 else [GOOD]) as server:
        done, usage = ask(server)
    assert done.text == "\\boxed{5}" and usage.retries == 1
    with Server(lambda n, body: reply) as server, pytest.raises(ItemError) as raised:
        ask(server)
    assert raised.value.kind in ("connection", "bad_answer")


def test_a_refused_connection_is_a_typed_error():
    with Server(lambda n, body: [GOOD]) as server:
        pass
    with pytest.raises(ItemError) as raised:
        ask(server)
    assert raised.value.kind == "connection"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_request_can_change_stops_the_evaluation(status):
    refused = http(status, {"error": "no"})
    with (
        Server(lambda n, body: [refused]) as server,
        pytest.raises(EndpointError, match=f"{status}.*--"),
    ):
        ask(server)
    assert len(server.bodies) == 1


def test_a_prompt_that_is_too_long_ends_the_episode():
    error = {"error": {"code": "context_length_exceeded"}}
    with Server(lambda n, body: [http(400, error)]) as server:
        first = machine()
        with pytest.raises(EpisodeOver):
            ask(server, first)
    assert first.episode.stop_reason is StopReason.CONTEXT_OVERFLOW


def test_the_budget_of_tokens_ends_the_episode():
    wrong = http(200, chat("\\boxed{11}"))
    with Server(lambda n, body: [wrong]) as server:
        policy = EndpointPolicy(config_of(server, item_tokens=20), {})
        first = machine("game:GuessTheNumber-v0-hard")
        with pytest.raises(EpisodeOver):
            asyncio.run(play(first, policy))
    assert first.episode.stop_reason is StopReason.TRUNCATED_TOKENS
    assert len(first.episode.turns) == len(server.bodies) == 2  # 14 tokens each


def test_thinking_without_a_text_is_an_empty_action():
    with Server(lambda n, body: [http(200, chat(None, reasoning_content="hm"))]) as server:
        assert ask(server)[0].text == ""


def test_native_tool_calls_become_text():
    call = {"function": {"name": "python", "arguments": '{"code": "print(1)"}'}}
    with Server(lambda n, body: [http(200, chat(None, tool_calls=[call]))]) as server:
        first = machine()
        first.env.functions = [{"type": "function", "function": {"name": "python"}}]
        done, _ = ask(server, first, native_tools=True)
    assert server.bodies[0]["tools"] == first.env.functions
    assert done.text == (
        '\n<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>'
    )
    assert as_text([{"function": {"name": "f", "arguments": "{x"}}, 3, {}]).count("{x") == 1


def test_connections_are_kept_and_closed_ones_are_replaced():
    replies = [[GOOD], [GOOD], [http(200, chat("x"), "connection: close"), CUT], [GOOD]]
    with Server(lambda n, body: replies[n]) as server:

        async def four():
            client = HttpClient(server.url, {})
            statuses = [(await client.post("/chat/completions", b"{}")).status for _ in range(4)]
            await client.close()
            return statuses

        assert asyncio.run(four()) == [200] * 4
    assert server.connections == 2


def test_a_chunked_body_is_put_together():
    whole = json.dumps(chat("part by part")).encode()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = [b"%x;a=b\r\n%s\r\n" % (len(p), p) for p in (whole[:30], whole[30:])]
    tail = b"0\r\ntrailer: 1\r\n\r\n"
    with Server(lambda n, body: [head, parts[0], 0.01, parts[1], tail]) as server:
        assert ask(server)[0].text == "part by part"


def test_a_body_without_a_length_ends_with_the_connection():
    body = json.dumps(chat("whole")).encode()
    with Server(lambda n, _: [b"HTTP/1.0 200 OK\r\n\r\n", body[:9], 0.01, body[9:], CUT]) as server:
        assert ask(server)[0].text == "whole"


def test_the_server_decides_how_long_all_requests_wait():
    slow_down = http(429, b"", "retry-after-ms: 200")
    with Server(lambda n, body: [slow_down] if n == 0 else [GOOD]) as server:
        config = config_of(server, retry=RetryConfig(first_pause_s=0.001))
        policy = EndpointPolicy(config, {})
        first, second = machine(), machine()
        for one in (first, second):
            one.start()

        async def two():
            began = time.monotonic()
            task = asyncio.ensure_future(policy.complete(Request([], 5, first)))
            while not server.bodies or policy._pacer._not_before == 0:
                assert time.monotonic() < began + 5, "the server's wish was not noted"
                await asyncio.sleep(0.005)
            await policy.complete(Request([], 5, second))
            later = time.monotonic() - began
            await task
            await policy.close()
            return later

        assert asyncio.run(two()) >= 0.2
    assert len(server.bodies) == 3


def test_requests_per_minute_are_spread():
    pacer = Pacer(FAST, per_minute=60 * 100)

    async def eleven():
        began = time.monotonic()
        for _ in range(11):
            await pacer.wait_for_turn()
        return time.monotonic() - began

    assert asyncio.run(eleven()) >= 0.1 - 0.01


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "9", "retry-after-ms": "150"}, 0.15),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read(headers, seconds):
    assert retry_after(headers, now=60.0) == seconds


@pytest.mark.parametrize("url", ["ftp://x/v1", "127.0.0.1:80", "http:///v1"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(GemError, match="is not an address"):
        EndpointPolicy(EndpointConfig(base_url=url, model="m"), {})


@pytest.mark.parametrize("url", ["http://me:secret@h/v1", "http://h/v1?version=2"])
def test_what_an_address_has_and_is_not_sent_is_refused(url):
    with pytest.raises(GemError, match="not sent") as raised:
        EndpointPolicy(EndpointConfig(base_url=url, model="m"), {})
    assert "secret" not in str(raised.value)


def test_a_key_cannot_add_headers():
    with pytest.raises(GemError, match="authorization"):
        EndpointPolicy(
            EndpointConfig(base_url="http://127.0.0.1:1/v1", model="m"), {}, key="a\r\nhost: b"
        )


def test_prices_are_read(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text('{"m": {"input": 1, "output": 2}}')
    assert read_price(path, "m") == Price(input=1.0, output=2.0)
    with pytest.raises(GemError, match="no price of 'other'"):
        read_price(path, "other")
    path.write_text('{"m": {"input": 1}}')
    with pytest.raises(GemError, match="output"):
        read_price(path, "m")


def test_a_long_wait_is_said_once(caplog, monkeypatch):
    async def no_time(_):
        pass

    monkeypatch.setattr("gem_core.policies.endpoint.retries.asyncio.sleep", no_time)

    async def failures():
        pacer = Pacer(RetryConfig(longest_pause_s=30.0))
        for asked in (2.0, 20.0, 20.0, 20.0, 900.0):
            await pacer.pause(1, asked)

    asyncio.run(failures())
    assert [record.getMessage() for record in caplog.records] == [
        "The endpoint asks to wait: no request for 20 s.",
        "The endpoint asks to wait: no request for 30 s (it asked for 900 s).",
    ]
