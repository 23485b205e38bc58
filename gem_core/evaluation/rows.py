"""The row of an item in ``items.jsonl``: its result in numbers, or why there is none."""

from __future__ import annotations

from typing import Any

import msgspec

from gem_core.episodes.data import Episode, StopReason
from gem_core.evaluation.items import Item
from gem_core.policies.endpoint.usage import Usage


class Failure(msgspec.Struct, frozen=True):
    """Why an item has no result."""

    kind: str
    """One of `gem_core.policies.failures.KINDS`."""
    message: str


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One item that is over. With an ``error`` it has no result, and the numbers mean nothing."""

    item: int
    task: int
    sample: int
    env: int
    env_id: str
    seed: int
    success: bool = False
    reward: float = 0.0
    """Undiscounted sum of the rewards."""
    turns: int = 0
    stop: str = ""
    """Value of `gem_core.episodes.data.StopReason`."""
    tool_calls: int | None = None
    """``None`` where the environment has no tools."""
    tool_failures: int = 0
    action_tokens: int = 0
    """Tokens that the policy sampled; by the count of the endpoint, where there is one."""
    seconds: float = 0.0
    """Wall seconds, waiting for the endpoint included."""
    usage: Usage | None = None
    error: Failure | None = None


def row_of(item: Item, episode: Episode, seconds: float, usage: Usage | None = None) -> ItemRow:
    """Return the row of an episode. One whose environment failed is an error, a late one is not."""
    stop = episode.stop_reason
    if stop.failed and stop is not StopReason.DEADLINE:
        failure = Failure(stop.value, episode.error or stop.value)
        return error_row(item, episode.env_id, failure, seconds, usage)
    tools = [turn.info for turn in episode.turns if "tool_calls" in turn.info]
    return ItemRow(
        **_place(item, episode.env_id),
        success=episode.success,
        reward=episode.total_reward,
        turns=len(episode.acts),
        stop=stop.value,
        tool_calls=int(tools[-1]["tool_calls"]) if tools else None,
        tool_failures=int(tools[-1].get("tool_failures", 0)) if tools else 0,
        action_tokens=usage.completion_tokens if usage else episode.action_tokens,
        seconds=seconds,
        usage=usage,
    )


def error_row(
    item: Item, env_id: str, failure: Failure, seconds: float, usage: Usage | None = None
) -> ItemRow:
    """Return the row of an item without a result."""
    return ItemRow(**_place(item, env_id), seconds=seconds, usage=usage, error=failure)


def _place(item: Item, env_id: str) -> dict[str, Any]:
    """Return the fields that say which item it is."""
    named = {"task": item.task, "sample": item.sample, "env": item.env, "seed": item.seed}
    return {"item": item.index, "env_id": env_id, **named}
