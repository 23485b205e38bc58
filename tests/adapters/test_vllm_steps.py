"""The step loop of a vLLM engine: requests come and go one by one, and none of them is lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from gem_adapters.vllm_steps import StepPolicy
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError

END = 1


class StepEngine:
    """vLLM's step loop: a request ends after as many steps as its prompt has tokens."""

    def __init__(self, fails=0, loses=None):
        self.running = {}
        self.most = 0
        self.aborted = []
        self.fails = fails
        self.loses = loses

    def add_request(self, name, prompt, params):
        if not prompt["prompt_token_ids"]:
            raise ValueError("the prompt is empty")
        self.running[name] = [len(prompt["prompt_token_ids"]), params]
        self.most = max(self.most, len(self.running))

    def abort_request(self, names):
        self.aborted += names
        for name in names:
            self.running.pop(name, None)

    def has_unfinished_requests(self):
        return bool(self.running)

    def step(self):
        if self.fails:
            self.fails -= 1
            if not self.fails:
                raise RuntimeError("the engine fails")
        done = []
        for name, state in list(self.running.items()):
            state[0] -= 1
            if state[0] <= 0:
                del self.running[name]
                if self.loses != name:
                    done.append(
                        SimpleNamespace(request_id=name, finished=True, outputs=[row(*state)])
                    )
            else:
                done.append(SimpleNamespace(request_id=name, finished=False, outputs=[]))
        return done


def row(_, cap):
    table = {cap: SimpleNamespace(logprob=-1.0)}
    ends = {END: SimpleNamespace(logprob=0.0)}
    return SimpleNamespace(token_ids=[cap, END], logprobs=[table, ends], finish_reason="stop")


def policy_of(engine):
    return StepPolicy(engine, lambda request: request.max_tokens, [END])


def asked(policy, lengths, ended=None):
    """Ask for one completion per length at the same time; return their tokens, or the errors."""

    async def one(length):
        answer = await policy.complete(Request([5] * length, 10 + length, None))
        if ended is not None:
            ended.append(length)
        return answer

    async def run():
        return await asyncio.gather(*map(one, lengths), return_exceptions=True)

    return asyncio.run(asyncio.wait_for(run(), 20))


def test_requests_do_not_wait_for_each_other():
    engine, ended = StepEngine(), []
    policy = policy_of(engine)
    answers = asked(policy, (9, 2, 4), ended)
    assert ended == [2, 4, 9] and engine.most == 3
    assert [answer.token_ids for answer in answers] == [[19, END], [12, END], [14, END]]
    assert answers[0].logprobs == [-1.0, 0.0] and not engine.aborted
    assert policy.work.steps == 9 and policy.work.rows == 9 + 2 + 4


def test_a_request_that_comes_later_joins_the_ones_that_run():
    engine = StepEngine()
    policy = policy_of(engine)
    order = []

    async def late():
        while len(engine.running) < 1 or policy.work.steps < 3:
            await asyncio.sleep(0)
        await policy.complete(Request([5] * 2, 9, None))
        order.append("late")

    async def early():
        await policy.complete(Request([5] * 50, 9, None))
        order.append("early")

    async def run():
        await asyncio.gather(early(), late())

    asyncio.run(run())
    assert order == ["late", "early"] and engine.most == 2


def test_an_error_of_the_engine_reaches_every_request():
    engine = StepEngine(fails=3)
    answers = asked(policy_of(engine), (9, 8, 1))
    assert answers[2].token_ids == [11, END]
    assert all(isinstance(error, RuntimeError) for error in answers[:2])
    assert not engine.aborted  # it answers nothing any more


def test_a_refused_request_leaves_nothing_behind():
    policy = policy_of(StepEngine())
    refused, answer = asked(policy, (0, 3))
    assert isinstance(refused, ValueError) and answer.token_ids == [13, END]
    assert asked(policy, (2,))[0].token_ids == [12, END]  # also in a new event loop


def test_a_cancelled_request_is_aborted():
    engine = StepEngine()
    policy = policy_of(engine)

    async def run():
        long = asyncio.ensure_future(policy.complete(Request([5] * 500, 9, None)))
        await policy.complete(Request([5] * 3, 9, None))
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
        return await policy.complete(Request([5] * 2, 9, None))

    assert asyncio.run(run()).token_ids == [9, END]
    assert len(engine.aborted) == 1 and not engine.running and policy.work.steps < 20


def test_a_lost_request_is_an_error_and_no_endless_loop():
    answers = asked(policy_of(StepEngine(loses="gem-1")), (3, 5))
    assert answers[0].token_ids == [13, END]
    assert isinstance(answers[1], GemError) and "did not answer 1" in str(answers[1])


def test_log_probabilities_are_asked_for_or_not():
    engine = StepEngine()
    silent = lambda _, cap: SimpleNamespace(  # noqa: E731
        token_ids=[cap, END], logprobs=None, finish_reason="stop"
    )
    without = StepPolicy(engine, lambda request: request.max_tokens, [END], reports_logprobs=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "row", silent)
        assert asked(without, (2,))[0].logprobs is None
        (missing,) = asked(policy_of(engine), (2,))
    assert isinstance(missing, GemError) and "log-probabilities" in str(missing)


class ReportingEngine(StepEngine):
    """Reports which tokens could be drawn."""

    def step(self):
        outputs = super().step()
        for output in outputs:
            for answer in output.outputs:
                answer.sampling_mask = SimpleNamespace(token_ids=[[11, 9], [END]])
        return outputs


def test_the_tokens_that_could_be_drawn_are_kept_where_vllm_reports_them():
    (plain,), (answer,) = (asked(policy_of(e), (1,)) for e in (StepEngine(), ReportingEngine()))
    assert plain.support is None
    assert [list(ids) for ids in answer.support] == [[11, 9], [END]]
