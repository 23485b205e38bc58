"""What a list shows of an episode: a row of `COLUMNS`, computed from its line."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

COLUMNS = (
    "step",
    "split",
    "env",
    "seed",
    "grp",
    "idx",
    "turns",
    "reward",
    "success",
    "stop",
    "tokens",
)
"""The reward is the return of the episode; a seed beyond 64 bits is a text."""
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Columns = tuple[Int64, str, str, Int64 | str | None, Int64, Int64, Int64, float, bool, str, Int64]


class _Turn(msgspec.Struct):
    reward: float = 0.0
    kind: str = "action"


class _Segment(msgspec.Struct):
    spans: list[tuple[int, int, int]] = []


class _Line(msgspec.Struct):
    step: int
    split: str
    env_id: str
    stop_reason: str
    seed: int | None = None
    group: int = 0
    index: int = -1
    success: bool = False
    turns: list[_Turn] = []
    segments: list[_Segment] = []


_DECODER = msgspec.json.Decoder(_Line)


def columns_of(line: bytes) -> Columns | None:
    """Return the columns of a line of JSON; ``None`` if it is no episode."""
    try:
        data = _DECODER.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError):
        try:  # Python writes NaN and Infinity, which are not JSON
            data = msgspec.convert(json.loads(line), _Line)
        except (ValueError, RecursionError, OverflowError):
            return None
    columns = (
        data.step,
        data.split,
        data.env_id,
        _seed(data.seed),
        data.group,
        data.index,
        sum(turn.kind == "action" for turn in data.turns),
        _return(data),
        data.success,
        data.stop_reason,
        _tokens(data),
    )
    return columns if _in_range(columns) else None


def _in_range(columns: Columns) -> bool:
    """Whether the integers have 64 bits, and the texts can be written as UTF-8."""
    integers = (value for value in columns if isinstance(value, int))
    texts = (value for value in columns if isinstance(value, str))
    return all(-(2**63) <= v < 2**63 for v in integers) and all(map(_is_utf8, texts))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _seed(seed: Any) -> int | str | None:
    return seed if seed is None or abs(seed) < 2**63 else str(seed)


def _return(data: _Line) -> float:
    total = 0.0
    for turn in data.turns:
        total += turn.reward
    return total


def _tokens(data: _Line) -> int:
    total = 0
    for segment in data.segments:
        for _, start, end in segment.spans:
            total += end - start
    return total
