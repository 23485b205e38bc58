"""The engine in an event loop: joining, cancelling, pausing, new weights, errors."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

from gem_core.policies.engine.asynchronous import AsyncEngine
from gem_core.policies.engine.engine import Engine, EngineRequest

FREE = frozenset()


def request(number, tokens=6, prompt=None):
    return EngineRequest(prompt or [3 + number, 4, 5], tokens, FREE, seed=number)


class Gate:
    """Holds an engine's thread inside of one of its forward passes, as a slow one would be."""

    def __init__(self, model, step):
        self._forward = model.forward
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._reached = asyncio.Event()
        self._opened = threading.Event()
        model.forward = self

    def __call__(self, *args, **kwargs):
        self._step -= 1
        if self._step == 0:
            self._loop.call_soon_threadsafe(self._reached.set)
            assert self._opened.wait(30)
        return self._forward(*args, **kwargs)

    async def reached(self):
        await asyncio.wait_for(self._reached.wait(), 30)

    def open(self):
        self._opened.set()


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


def test_a_cancelled_call_aborts_its_request_after_the_step(make):
    async def play():
        model = make()
        engine = AsyncEngine(Engine(model))
        gate = Gate(model, 20)
        long = asyncio.ensure_future(engine.complete(request(1, tokens=250)))
        await engine.complete(request(2))
        await gate.reached()
        long.cancel()
        await asyncio.wait([long])
        gate.open()
        while engine.unfinished:
            await asyncio.sleep(0)
        steps = sum(engine.engine.batches.values())
        return steps, await engine.complete(request(3))

    steps, again = asyncio.run(play())
    assert steps == 20
    assert again == Engine(make()).generate([request(3)])[0]


def test_a_cancelled_call_changes_no_other(make):
    async def play():
        model = make()
        engine = AsyncEngine(Engine(model))
        gate = Gate(model, 5)
        both = [asyncio.ensure_future(engine.complete(request(n, tokens=30))) for n in (1, 2)]
        await gate.reached()
        both[0].cancel()
        await asyncio.wait([both[0]])
        gate.open()
        done = await both[1]
        return done, engine.engine.batches

    done, batches = asyncio.run(play())
    assert done == Engine(make()).generate([request(2, tokens=30)])[0]
    assert batches == {2: 5, 1: 25}


def test_a_pause_holds_all_requests_until_the_end_of_the_pause(make):
    async def play():
        model = make()
        engine = AsyncEngine(Engine(model))
        gate = Gate(model, 20)
        running = asyncio.ensure_future(engine.complete(request(1, tokens=200)))
        await gate.reached()
        pause = asyncio.ensure_future(engine.pause())
        await asyncio.sleep(0)
        gate.open()
        await pause
        late = asyncio.ensure_future(engine.complete(request(2)))
        await asyncio.sleep(0.03)
        assert engine.engine.batches == {1: 20}
        assert not running.done() and not late.done()
        engine.resume()
        return await asyncio.gather(running, late)

    alone = Engine(make()).generate([request(1, tokens=200), request(2)])
    assert asyncio.run(play()) == alone


def test_weights_change_between_two_steps_and_all_caches_go(make):
    model = make()

    def change(batches):
        with torch.no_grad():
            model.model.layers[0].input_layernorm.weight[:32].mul_(1.3)
        return dict(batches)

    async def play():
        engine = AsyncEngine(Engine(model))
        first = await engine.complete(request(1))
        gate = Gate(model, 20)
        running = asyncio.ensure_future(engine.complete(request(2, tokens=200)))
        await gate.reached()
        update = asyncio.ensure_future(engine.update(change, engine.engine.batches))
        await asyncio.sleep(0)
        gate.open()
        assert await update == {1: 6 + 20}, "the number of steps before the change"
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
