"""Generation server with sglang's HTTP interface around gem_core's CPU engine.

``python -m gem_rl2.cpu.engine HOST PORT PARENT MODEL``. Requests that run at the same time are
sampled in one batch. Ends when the process PARENT ends.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from aiohttp import web
from transformers import AutoModelForCausalLM

from gem_adapters.engine_state import EngineState
from gem_adapters.support import SUPPORT
from gem_adapters.versions import (
    VERSION,
    VersionedEngines,
    complete_by_version,
    count_kept_versions,
)
from gem_core.episodes.data import Completion, Support
from gem_core.errors import GemError
from gem_core.policies.engine.asynchronous import AsyncEngine
from gem_core.policies.engine.engine import Engine as CpuEngine
from gem_core.policies.engine.engine import EngineRequest
from gem_core.policies.engine.sampling import Sampling
from gem_rl2.cpu.router import serve
from gem_rl2.cpu.stand_ins import MultiprocessingSerializer, SamplingParams, unflatten


class Engine:
    """The endpoints of sglang that RL2 calls.

    ``GET /stats`` tells how often each was called, how many tensors were written, and how large
    the generation batches were: what tests assert.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self.engines = VersionedEngines(
            self.model, lambda model: AsyncEngine(CpuEngine(model)), count_kept_versions()
        )
        self.counts: Counter[str] = Counter()
        self.state = EngineState()

    def app(self) -> web.Application:
        """The server application."""
        app = web.Application(client_max_size=1 << 30)
        routes = {
            "generate": self.generate,
            "update_weights_from_tensor": self.update_weights,
            "release_memory_occupation": self.release,
            "resume_memory_occupation": self.resume,
            "pause_generation": self.done,
            "continue_generation": self.done,
            VERSION: self.name_version,
        }
        app.add_routes([web.post(f"/{name}", handler) for name, handler in routes.items()])
        app.add_routes([web.get(f"/{name}", self.done) for name in ("health", "health_generate")])
        # What sglang's router asks an engine before it sends requests to it.
        asked = ("server_info", "get_server_info", "model_info", "get_model_info")
        app.add_routes([web.get(f"/{name}", self.describe) for name in asked])
        app.add_routes([web.get("/stats", self.stats)])
        return app

    async def generate(self, request: web.Request) -> web.Response:
        """Sample one completion; what the engine cannot honour is refused."""
        self.counts["generate"] += 1
        try:
            self.state.ask()
        except GemError as error:
            return web.Response(status=500, text=str(error))
        body = await request.json()
        try:
            params = SamplingParams(**body["sampling_params"])
        except TypeError as error:
            return web.Response(status=400, text=f"The CPU engine: {error}")
        asked = EngineRequest(
            body["input_ids"],
            params.max_new_tokens,
            frozenset(params.stop_token_ids),
            Sampling(params.temperature, params.top_p, params.top_k),
            params.sampling_seed,
            support=bool(body.get(SUPPORT)),
        )
        try:
            completion = await complete_by_version(self.engines, asked, body.get(VERSION))
        except GemError as error:
            return web.Response(status=500, text=str(error))
        return web.json_response(_answer(completion))

    async def update_weights(self, request: web.Request) -> web.Response:
        """Overwrite parameters by name, in either of RL2's two formats."""
        body = await request.json()
        text = body["serialized_named_tensors"][0]
        if body.get("load_format") == "flattened_bucket":
            data = MultiprocessingSerializer.deserialize(text)
            named = unflatten(data["flattened_tensor"], data["metadata"])
        else:
            pairs = MultiprocessingSerializer.deserialize(base64.b64decode(text))
            named = ((name, tensor.get(0)) for name, tensor in pairs)
        try:
            self.state.load()
        except GemError as error:
            return web.Response(status=500, text=str(error))
        await self.engines.live.update(self._write, named)
        if body.get("flush_cache", True):
            self.state.reset_cache()
        return await self.done(request)

    async def name_version(self, request: web.Request) -> web.Response:
        """Take the number of the weights that have come."""
        self.engines.name((await request.json())["version"])
        return await self.done(request)

    async def release(self, request: web.Request) -> web.Response:
        """Give weights and cache up."""
        self.state.sleep(level=2)
        return await self.done(request)

    async def resume(self, request: web.Request) -> web.Response:
        """Take memory for both, without their contents."""
        self.state.wake_up()
        return await self.done(request)

    def _write(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        state = self.model.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, tensor in named:
                state[name].copy_(tensor)
                self.counts["tensors"] += 1

    async def done(self, request: web.Request) -> web.Response:
        """Count the call and report success."""
        self.counts[request.path.strip("/")] += 1
        return web.json_response({"success": True})

    async def describe(self, request: web.Request) -> web.Response:
        """What the engine serves."""
        return web.json_response(
            {"model_path": self.path, "served_model_name": self.path, "is_generation": True}
        )

    async def stats(self, request: web.Request) -> web.Response:
        """The counters."""
        batches = self.engines.live.engine.batches
        weights = sum(float(p.detach().double().sum()) for p in self.model.parameters())
        return web.json_response({**self.counts, "batches": dict(batches), "weights": weights})


def _answer(completion: Completion) -> dict[str, Any]:
    """A completion as sglang returns it (token ids, not text, are what RL2 trains on)."""
    assert completion.logprobs is not None
    pairs = zip(completion.logprobs, completion.token_ids, strict=True)
    return {
        "text": "",
        "output_ids": completion.token_ids,
        "meta_info": {
            "output_token_logprobs": [[logprob, token, None] for logprob, token in pairs],
            "completion_tokens": len(completion.token_ids),
            "finish_reason": {"type": completion.finish_reason.value},
            SUPPORT: _as_lists(completion.support),
            VERSION: completion.version,
        },
    }


def _as_lists(support: Support | None) -> list[list[int] | None] | None:
    """Return the sets as JSON has them."""
    if support is None:
        return None
    return [None if ids is None else list(ids) for ids in support]


def main(arguments: Sequence[str]) -> None:
    """See the module's docstring."""
    host, port, parent, path = arguments
    asyncio.run(serve(Engine(path).app(), host, int(port), int(parent)))


if __name__ == "__main__":
    main(sys.argv[1:])
