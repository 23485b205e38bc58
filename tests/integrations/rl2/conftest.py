"""What the RL2 tests share: the CPU stand-ins, a tokenizer, recipes, and a scripted engine."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest
import torch.distributed as dist
from aiohttp import web
from transformers import AutoTokenizer

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path
from gem_rl2.cpu import enable

enable()  # before any test imports RL2.workers


@pytest.fixture(scope="session")
def process_group():
    """A process group of one, as RL2 wants it everywhere."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())


@pytest.fixture(scope="session")
def tiny():
    """``tiny(*overrides)``: the tiny recipe."""
    return lambda *overrides: load_recipe("guess-the-number-easy", "tiny", overrides)


@pytest.fixture(scope="session")
def tokenizer(tiny):
    """The tiny model's tokenizer."""
    return AutoTokenizer.from_pretrained(model_path(tiny()))


class ScriptedEngine:
    """sglang's ``/generate`` that answers with what ``reply(number, body)`` gives."""

    def __init__(self, reply):
        self.reply = reply
        self.bodies = []

    def app(self):
        app = web.Application()
        app.add_routes([web.post("/generate", self.generate)])
        return app

    async def generate(self, request):
        body = await request.json()
        self.bodies.append(body)
        answer = self.reply(len(self.bodies) - 1, body)
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


@contextmanager
def serving(engine):
    """Serve ``engine`` in a thread; yields its URL."""
    started = threading.Event()
    stop = asyncio.Event()
    state = {}

    async def serve():
        runner = web.AppRunner(engine.app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        state["port"] = site._server.sockets[0].getsockname()[1]
        state["loop"] = asyncio.get_running_loop()
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{state['port']}"
    finally:
        state["loop"].call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture
def serve():
    """``with serve(engine) as url``: an engine with a method ``app``."""
    return serving


@pytest.fixture
def engine():
    """``with engine(reply) as (url, bodies)``: a scripted engine and what it was asked."""

    @contextmanager
    def start(reply):
        scripted = ScriptedEngine(reply)
        with serving(scripted) as url:
            yield url, scripted.bodies

    return start


def answer(token_ids, reason="stop", logprob=-0.5):
    """An answer of sglang."""
    return {
        "text": "",
        "meta_info": {
            "output_token_logprobs": [[logprob, token, None] for token in token_ids],
            "completion_tokens": len(token_ids),
            "finish_reason": {"type": reason},
        },
    }


@pytest.fixture
def answer_text(tokenizer):
    """``answer_text(text)``: sglang's answer with ``text`` and a stop token."""

    def to_answer(text):
        ids = tokenizer.encode(text, add_special_tokens=False)
        return answer([*ids, tokenizer.eos_token_id])

    return to_answer


@pytest.fixture
def answer_ids():
    """``answer_ids(token_ids, reason, logprob)``: sglang's answer, for tests that need odd ones."""
    return answer
