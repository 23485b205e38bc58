"""Where several episodes of one task differ: the first token in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]


def find_divergence(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return where ``records`` first differ; ``None`` if they are equal.

    Args:
        records: episodes as a run wrote them. With tokens in all of them their token ids are
            compared, segment after segment; otherwise the texts of their turns.

    Returns:
        ``unit`` (``token`` or ``text``), ``position`` (in the whole sequence), and, for tokens,
        ``segment``, ``offset`` in it, ``turn`` whose action has the token (-1: a prompt's), and
        ``ids`` of every record there (``None`` where it has ended).
    """
    if all(record.get("segments") for record in records):
        return _compare_tokens(records)
    sequences = [_texts(record) for record in records]
    position = first_difference(sequences)
    if position is None:
        return None
    return {"unit": "text", "position": position, "turn": position // 2}


def _compare_tokens(records: Sequence[Record]) -> dict[str, Any] | None:
    sequences = [_tokens(record) for record in records]
    position = first_difference(sequences)
    if position is None:
        return None
    known = next(s for s in sequences if position < len(s))
    segment, offset, _ = known[position]
    owner = records[sequences.index(known)]
    spans = owner["segments"][segment]["spans"]
    turn = next((t for t, start, end in spans if start <= offset < end), -1)
    ids = [s[position][2] if position < len(s) else None for s in sequences]
    return {
        "unit": "token",
        "position": position,
        "segment": segment,
        "offset": offset,
        "turn": turn,
        "ids": ids,
    }


def first_difference(sequences: Sequence[Sequence[Any]]) -> int | None:
    """Return the first position at which not all are equal; ``None`` if there is none.

    >>> first_difference(["abc", "abd", "ab"])
    2
    """
    shortest = min(len(sequence) for sequence in sequences)
    first = sequences[0]
    for position in range(shortest):
        if any(sequence[position] != first[position] for sequence in sequences[1:]):
            return position
    if any(len(sequence) != shortest for sequence in sequences):
        return shortest
    return None


def _tokens(record: Record) -> list[tuple[int, int, int]]:
    """Return ``(segment, offset, token id)`` of every token."""
    return [
        (number, offset, token)
        for number, segment in enumerate(record["segments"])
        for offset, token in enumerate(segment["token_ids"])
    ]


def _texts(record: Record) -> list[str]:
    texts = [text for turn in record["turns"] for text in (turn["observation"], turn["action"])]
    return [*texts, record.get("final_observation", "")]
