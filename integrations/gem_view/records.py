"""Whether an episode of a file has what the page shows of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gem_core.errors import RunError
from gem_core.runs.directory.files import convert
from gem_core.runs.directory.records import Number

SHOWN_BYTES = 16 << 20
"""Bytes of an episode that a browser can be asked to show."""


class _Turn(msgspec.Struct):
    observation: str
    action: str
    reward: float = 0.0
    info: dict[str, Any] = {}
    finish_reason: str = ""
    kind: Literal["action", "summary"] = "action"


class _Segment(msgspec.Struct):
    token_ids: list[Number]
    loss_mask: list[int]
    spans: list[tuple[int, int, int]]
    logprobs: list[float | None] | None = None
    support: list[list[int] | None] | None = None


class _Record(msgspec.Struct):
    step: Number
    split: str
    env_id: str
    stop_reason: str
    turns: list[_Turn]
    segments: list[_Segment] = []
    success: bool = False
    seed: int | None = None
    group: int = 0
    index: Number = -1
    final_observation: str = ""
    error: str | None = None
    seconds: dict[str, float] = {}
    advantages: list[float | None] | None = None


def require_shown(record: Mapping[str, Any], where: str) -> None:
    """Check an episode.

    Raises:
        RunError: it lacks something, or something has another type or length; the message begins
            with ``where``.
    """
    read = convert(record, _Record, where)
    for number, segment in enumerate(read.segments):
        length = len(segment.token_ids)
        optional = (segment.logprobs or segment.token_ids, segment.support or segment.token_ids)
        if {len(numbers) for numbers in (segment.loss_mask, *optional)} != {length}:
            raise RunError(f"{where} is damaged: the lists of segment {number} differ in length.")
        for turn, start, end in segment.spans:
            if not (0 <= start <= end <= length and 0 <= turn < len(read.turns)):
                raise RunError(f"{where} is damaged: segment {number} has no tokens {start}:{end}.")
