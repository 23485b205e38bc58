"""The engine in an event loop: joining, cancelling, pausing, new weights, errors."""

from __future__ import annotations

import asyncio

import pytest
import torch

from gem_core.engines.asynchronous import AsyncEngine
from gem_core.engines.engine import Engine, EngineRequest

FREE = frozenset()


def request(number, tokens=6, prompt=None):
    return EngineRequest(prompt or [3 + number, 4, 5], tokens, FREE, seed=number)


def test_requests_that_come_at_any_time_get_what_they_get_alone(model):
    async def one(engine, number):
        await asyncio.sleep(0.003 * (number % 7))
        return await engine.complete(request(number, tokens=3 + number % 9))

    async def play():
        engine = AsyncEngine(Engine(model))
        done = await asyncio.gather(*(one(engine, number) for number in range(30)))
        assert engine.unfinished == 0
        return done

    alone = [Engine(model).generate([request(n, tokens=3 + n % 9)])[0] for n in range(30)]
    assert asyncio.run(play()) == alone


def test_requests_that_come_together_are_sampled_together(model):
    async def play():
        engine = AsyncEngine(Engine(model))
        await asyncio.gather(*(engine.complete(request(number)) for number in range(25)))
        return engine.engine.batches

    assert asyncio.run(play()) == {25: 6}


def test_a_cancelled_call_aborts_its_request(model):
    async def play():
        engine = AsyncEngine(Engine(model))
        long = asyncio.ensure_future(engine.complete(request(1, tokens=250)))
        short = asyncio.ensure_future(engine.complete(request(2)))
        await asyncio.sleep(0.01)
        long.cancel()
        done = await short
        while engine.unfinished:
            await asyncio.sleep(0.001)
        again = await engine.complete(request(3))
        return done, again, engine.engine.batches

    done, again, batches = asyncio.run(play())
    assert done == Engine(model).generate([request(2)])[0]
    assert again == Engine(model).generate([request(3)])[0]
    assert sum(batches.values()) < 100


def test_a_pause_holds_all_requests_until_the_end_of_the_pause(model):
    async def play():
        engine = AsyncEngine(Engine(model))
        running = asyncio.ensure_future(engine.complete(request(1, tokens=200)))
        await asyncio.sleep(0.02)
        await engine.pause()
        steps = sum(engine.engine.batches.values())
        late = asyncio.ensure_future(engine.complete(request(2)))
        await asyncio.sleep(0.03)
        assert sum(engine.engine.batches.values()) == steps
        assert not running.done() and not late.done()
        engine.resume()
        return await asyncio.gather(running, late)

    assert asyncio.run(play()) == Engine(model).generate([request(1, tokens=200), request(2)])


def test_weights_change_between_two_steps_and_all_caches_go(make):
    model = make()

    def change():
        with torch.no_grad():
            model.model.layers[0].input_layernorm.weight[:32].mul_(1.3)
        return "changed"

    async def play():
        engine = AsyncEngine(Engine(model))
        first = await engine.complete(request(1))
        running = asyncio.ensure_future(engine.complete(request(2, tokens=200)))
        await asyncio.sleep(0.01)
        assert await engine.update(change) == "changed"
        prompt = [*request(1).prompt_ids, *first.token_ids, 9]
        second = await engine.complete(request(3, prompt=prompt))
        await running
        return prompt, second

    prompt, second = asyncio.run(play())
    assert second == Engine(model).generate([request(3, prompt=prompt)])[0]


def test_a_refused_request_fails_alone(model):
    async def play():
        engine = AsyncEngine(Engine(model, max_model_len=10))
        results = await asyncio.gather(
            engine.complete(request(1)),
            engine.complete(request(2, prompt=list(range(3, 30)))),
            return_exceptions=True,
        )
        return results

    good, refused = asyncio.run(play())
    assert len(good.token_ids) == 6
    assert isinstance(refused, ValueError)


def test_an_error_of_a_step_reaches_all_and_the_engine_works_on(make):
    model = make()
    forward = model.forward
    calls = []

    def broken(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return forward(*args, **kwargs)

    model.forward = broken

    async def play():
        engine = AsyncEngine(Engine(model))
        both = [engine.complete(request(number)) for number in (1, 2)]
        errors = await asyncio.gather(*both, return_exceptions=True)
        return errors, await engine.complete(request(1))

    errors, good = asyncio.run(play())
    assert [str(error) for error in errors] == ["out of memory"] * 2
    assert good == Engine(make()).generate([request(1)])[0]


def test_an_engine_serves_one_event_loop_after_another(model):
    engine = AsyncEngine(Engine(model))
    with pytest.raises(ValueError, match="context limit"):
        asyncio.run(engine.complete(request(1, prompt=[1] * 300)))
    assert asyncio.run(engine.complete(request(1))).token_ids
