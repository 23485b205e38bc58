"""Which data the environments of a run had, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.runs.directory.run_dir import RunDir


def data_lines(environments: Sequence[Mapping[str, Any]] | Mapping[str, str]) -> list[str]:
    """Return one line per environment of a run.

    Args:
        environments: as in ``run.json`` and ``result.json``, see
            `gem_core.runs.environments.description.describe_environments`; or as in results of
            format 1, where an id has a fingerprint only, of its parameters without the data.

    >>> data_lines({"game:Sudoku-v0-easy": "00c0ffee00c0ffee"})
    ['game:Sudoku-v0-easy: 00c0ffee00c0ffee, data not recorded']
    """
    if isinstance(environments, Mapping):
        return [f"{name}: {digest}, data not recorded" for name, digest in environments.items()]
    return [_line(row) for row in environments]


def environments_of(run: RunDir) -> list[str]:
    """Return `data_lines` of a run, of any version; none if it recorded no environments."""
    environments = run.info.get("environments")
    if environments is None and run.finished:
        environments = run.result.get("environments")
    return data_lines(environments or [])


def _line(row: Mapping[str, Any]) -> str:
    parts = [row["fingerprint"]]
    if row["items"] is not None:
        part = row["kwargs"].get("part")
        parts.append(f"{f'part {part!r} of ' if part else ''}{row['items']} items")
    if row["data_revision"] is not None:
        parts.append(row["data_revision"])
    if row["sample"]:
        parts.append("built-in SAMPLE")
    known = row.get("provenance", {})
    if "server_fingerprint" in known:
        parts.append(f"on the server {known['server_fingerprint']}")
    if known.get("seeds") == "do not decide":
        parts.append("its seeds DO NOT DECIDE the episodes")
    use = "" if len(row["used_in"]) == 2 else f" ({row['used_in'][0]})"
    return f"{row['id']}{use}: {', '.join(parts)}"
