"""The stand-in for vLLM's engine while it takes turns with OpenRLHF's training."""

from __future__ import annotations

import asyncio

import pytest
import torch
from vllm import AsyncEngineArgs, AsyncLLMEngine, SamplingParams, engine

from gem_adapters.versions import VERSION
from gem_core.errors import GemError


def test_an_engine_that_sleeps_is_not_asked(model_dir):
    args = AsyncEngineArgs(model=model_dir, enable_prefix_caching=True)

    async def play():
        """A step in OpenRLHF's order, and what is wrong in between."""
        engine = AsyncLLMEngine.from_engine_args(args)

        async def ask():
            params = SamplingParams(max_tokens=1, seed=0, temperature=1.0)
            return [answer async for answer in engine.generate({"prompt_token_ids": [1]}, params)]

        assert len(await ask()) == 1
        await engine.sleep(level=1)
        assert await engine.is_sleeping()
        with pytest.raises(GemError, match="while its weights and kv_cache slept"):
            await ask()
        with pytest.raises(GemError, match="got weights while it slept"):
            engine.state.load()  # the first thing that `worker_update_weight` does
        await engine.wake_up(tags=["weights"])
        await engine.reset_prefix_cache()
        engine.state.load()
        with pytest.raises(GemError, match="while its kv_cache slept"):
            await ask()
        await engine.wake_up(tags=["kv_cache"])
        assert len(await ask()) == 1
        engine.state.load()
        with pytest.raises(GemError, match="cache is of weights before"):
            await ask()

    asyncio.run(play())


def test_an_engine_samples_with_the_weights_that_are_asked_for(model_dir, monkeypatch):
    monkeypatch.setattr(engine, "count_kept_versions", lambda: 1)

    async def play():
        """What two versions report of the same draw, then of one that is gone."""
        made = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=model_dir))

        async def ask(**extra):
            params = SamplingParams(max_tokens=3, seed=0, temperature=1.0, logprobs=1)
            params.extra_args = extra
            prompt = {"prompt_token_ids": [1, 2]}
            (answer,) = [answer async for answer in made.generate(prompt, params)]
            return answer.outputs[0]

        def train():
            with torch.no_grad():
                for weight in made.model.parameters():
                    weight.mul_(1.5)

        first = await ask()
        await made.engine.update(train)
        made.engines.name(1)
        newest, old = await ask(), await ask(**{VERSION: 0})
        assert old.logprobs == first.logprobs != newest.logprobs
        assert [output.version for output in (first, newest, old)] == [0, 1, 0]
        made.engines.name(2)
        with pytest.raises(GemError, match=r"those of the steps \[1, 2\]"):
            await ask(**{VERSION: 0})

    asyncio.run(play())
