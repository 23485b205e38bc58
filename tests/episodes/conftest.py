"""A byte tokenizer, a scripted environment and engines that the tests control."""

from __future__ import annotations

import threading
import time

import pytest

from gem_core.env.interface import Env
from gem_core.episodes.context import Context, Template
from gem_core.episodes.data import Completion, FinishReason
from gem_core.episodes.machine import EpisodeMachine, Limits

STOP = 0


class Bytes:
    """id = byte + 1; 0 stops."""

    stop_ids = frozenset({STOP})

    def encode(self, text):
        return [byte + 1 for byte in text.encode()]

    def decode(self, token_ids):
        return bytes(i - 1 for i in token_ids if i > 0).decode(errors="replace")


class Script(Env):
    """Plays a list of steps: ``(observation, reward, terminated, truncated, info)``, an exception,
    or a number of seconds to hang."""

    def __init__(self, *steps, slow=False, reset_error=None):
        super().__init__()
        self.steps = list(steps)
        self.at = 0
        self.actions = []
        self.closed = 0
        self.slow = slow
        self.reset_error = reset_error
        self.release = threading.Event()

    def _reset(self, options):
        if self.reset_error:
            raise self.reset_error
        return "go", {"suffix": "board0"}

    def _step(self, action):
        self.actions.append(action)
        step = self.steps[self.at]
        self.at += 1
        if isinstance(step, Exception):
            raise step
        if isinstance(step, (int, float)):
            self.release.wait(step)
            return "late", 9.0, True, False, {"success": True}
        return step

    def close(self):
        self.closed += 1


def going(observation="next", reward=0.0, **info):
    return observation, reward, False, False, info


def won(reward=1.0):
    return "won", reward, True, False, {"success": True}


class Echo:
    """A batch policy that writes ``texts`` in turn order (or ``"a"``) and stops."""

    def __init__(self, *texts, delay=0.0):
        self.texts = texts
        self.delay = delay
        self.batches = []

    def complete_batch(self, requests):
        time.sleep(self.delay)
        self.batches.append(len(requests))
        return [self.one(request) for request in requests]

    def one(self, request):
        turn = request.machine.turn
        text = self.texts[turn] if turn < len(self.texts) else "a"
        ids = [*Bytes().encode(text), STOP]
        if len(ids) > request.max_tokens:
            ids = ids[: request.max_tokens]
            return Completion(ids, [-1.0] * len(ids), FinishReason.LENGTH)
        return Completion(ids, [-1.0] * len(ids))

    async def complete(self, request):
        return self.one(request)


@pytest.fixture
def kit():
    """The names of this module, plus ``machine(*steps, **options)``."""

    class Kit:
        stop = STOP
        tokenizer = Bytes()
        template = Template("t", "<{observation}>", "[{observation}]", close="!")

        def machine(
            self, *steps, limits=None, history="append", window=None, env=None, compact=None, **kw
        ):
            env = env or Script(*steps, **kw)
            context = Context(self.template, self.tokenizer, history, window, compact)
            return EpisodeMachine(env, context, limits or Limits(), seed=3, group=5, index=7)

        def complete(self, text, *, stop=True):
            ids = self.tokenizer.encode(text) + ([STOP] if stop else [])
            reason = FinishReason.STOP if stop else FinishReason.LENGTH
            return Completion(ids, [-0.5] * len(ids), reason)

    kit = Kit()
    kit.Script = Script
    kit.Echo = Echo
    kit.Bytes = Bytes
    kit.going = going
    kit.won = won
    return kit
