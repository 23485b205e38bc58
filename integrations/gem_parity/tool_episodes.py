"""Frozen episodes with tool calls: real programs, real searches, scripted actions.

What a tool returns is context, like any observation: no token of it is trained on. Calls succeed,
fail, are broken, are cut off, or exceed the budget; each that runs has a reward of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gem_core.env.interface import Env
from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import Request, play_batch
from gem_core.tools import Budget, ToolEnv, ToolRewards, make_tool
from gem_parity.frozen import _TEMPLATE, STOP_ID, _Bytes

SCRIPTS: tuple[tuple[str, ...], ...] = (
    ("<python>print(6 * 7)</python>", "right 42"),
    ("<python>1 / 0</python>", "wrong"),
    ("<search>lot 1049</search>", "<python>print(2 ** 40)</python>", "right"),
    ("<search>nothing like it</search>", "right"),
    ("<tool_call>not JSON</tool_call>", "<search>lot 1051</search>", "wrong"),
    ('<tool_call>{"name": "python", "arguments": {"code": "print(1)"}}</tool_call>', "right"),
    ("<python>print(1)</python>", "<python>print(2)</python>", "<python>print(3)</python>"),
    ("<python>print(" + "1 + " * 40, "wrong"),
)
"""The actions of each episode; the third call of the last but one exceeds the budget, and the first
action of the last is cut off."""
_MOST_TOKENS = 90


class _Question(Env):
    """Any action answers it; one that begins with "right" is right."""

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        return f"question {self.rng.randrange(100)}:", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action.startswith("right")
        return "", float(right), True, False, {"success": right}


class _Scripted:
    """A batch policy that writes the actions of `SCRIPTS`, with random log-probabilities."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Completion:
        machine = request.machine
        text = SCRIPTS[machine.index % len(SCRIPTS)][machine.turn]
        ids = _Bytes().encode(text)
        cut = len(ids) >= request.max_tokens
        ids = ids[: request.max_tokens] if cut else [*ids, STOP_ID]
        logprobs = [-self.rng.random() for _ in ids]
        return Completion(ids, logprobs, FinishReason.LENGTH if cut else FinishReason.STOP)


def tool_episodes(count: int = 16, *, group_size: int = 2, seed: int = 0) -> list[Episode]:
    """Return the episodes, the same on every machine that has a sandbox.

    Args:
        count: number of episodes.
        group_size: number of adjacent episodes that share a group.
        seed: seed of the questions and the log-probabilities.
    """
    machines = [_machine(number, group_size, seed) for number in range(count)]
    return play_batch(machines, _Scripted(seed))


def _machine(number: int, group_size: int, seed: int) -> EpisodeMachine:
    group = number // group_size
    env = ToolEnv(
        _Question(),
        [make_tool("python"), make_tool("search", topk=1)],
        budget=Budget(calls=2, output_tokens=60),
        rewards=ToolRewards(call=0.125, failed_call=-0.25),
        instructions=False,
    )
    return EpisodeMachine(
        env,
        Context(_TEMPLATE, _Bytes()),
        Limits(max_tokens_per_turn=_MOST_TOKENS, max_context_tokens=500),
        seed=seed * 1000 + group,
        group=group,
        index=number,
        env_id="frozen:tools",
    )
