"""An episode as a row of a table, and back: turns and token segments are nested in it.

What has no fixed fields (the info of a turn, the seconds of an episode) is JSON text: Parquet has
one type for each column, and every environment has infos of its own.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from gem_core.episodes.data import Episode
from gem_core.errors import RunError
from gem_export.episode import ExportedEpisode

_SPAN = pa.struct([("turn", pa.int32()), ("start", pa.int32()), ("end", pa.int32())])
_TURN = pa.struct(
    [
        ("index", pa.int32()),
        ("observation", pa.string()),
        ("action", pa.string()),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
        ("aborted", pa.bool_()),
        ("finish_reason", pa.string()),
        ("info", pa.string()),
    ]
)
_SEGMENT = pa.struct(
    [
        ("token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float64())),
        ("spans", pa.list_(_SPAN)),
        ("support", pa.list_(pa.list_(pa.int32()))),
    ]
)
SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("trainer", pa.string()),
        ("step", pa.int64()),
        ("split", pa.string()),
        ("env_id", pa.string()),
        ("seed", pa.int64()),
        ("group", pa.int64()),
        ("index", pa.int64()),
        ("stop_reason", pa.string()),
        ("success", pa.bool_()),
        ("total_reward", pa.float64()),
        ("final_observation", pa.string()),
        ("error", pa.string()),
        ("seconds", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("segments", pa.list_(_SEGMENT)),
    ]
)
"""The columns. ``advantage`` is null where the run stored none, ``logprobs`` where the engine
reported none, ``support`` where the tokens that could be drawn were not kept."""


def to_row(exported: ExportedEpisode) -> dict[str, Any]:
    """Return the row of an episode.

    Raises:
        RunError: there is not one advantage per turn.
    """
    row = exported.episode.to_dict()
    row["seconds"] = json.dumps(row["seconds"])
    row["total_reward"] = exported.episode.total_reward
    advantages = exported.advantages
    if advantages is not None and len(advantages) != len(row["turns"]):
        raise RunError(
            f"An episode of {exported.run} (step {exported.step}, index {row['index']}) has "
            f"{len(row['turns'])} turns and {len(advantages)} advantages: its file is damaged."
        )
    for number, turn in enumerate(row["turns"]):
        turn["info"] = json.dumps(turn["info"])
        turn["advantage"] = None if advantages is None else advantages[number]
    for segment in row["segments"]:
        segment["spans"] = [
            {"turn": turn, "start": start, "end": end} for turn, start, end in segment["spans"]
        ]
    own = {"run": exported.run, "trainer": exported.trainer}
    return {**own, "step": exported.step, "split": exported.split, **row}


def from_row(row: dict[str, Any]) -> ExportedEpisode:
    """Return the episode of a row: the inverse of `to_row`."""
    data = dict(row)
    run, trainer, step, split = (data.pop(name) for name in ("run", "trainer", "step", "split"))
    del data["total_reward"]
    data["seconds"] = json.loads(data["seconds"])
    turns = [dict(turn) for turn in data["turns"]]
    advantages = [turn.pop("advantage") for turn in turns]
    data["turns"] = [{**turn, "info": json.loads(turn["info"])} for turn in turns]
    data["segments"] = [
        {**segment, "spans": [[s["turn"], s["start"], s["end"]] for s in segment["spans"]]}
        for segment in data["segments"]
    ]
    stored = bool(advantages) and None not in advantages
    episode = Episode.from_dict(data)
    return ExportedEpisode(run, trainer, step, split, episode, advantages if stored else None)
