"""Runs generators and scorers of reasoning-gym in a worker process of its own."""

from __future__ import annotations

from typing import Any

from gem_core.envs import _rg_items, _rg_scores


def run(job: dict[str, Any]) -> Any:
    """Run the job ``{"do": "item" | "score", ...}``; see `_rg_items` and `_rg_scores`."""
    name = job["name"]
    config = job["config"]
    if job["do"] == "score":
        return _rg_scores.score(name, config, job["draw"], job["answer"])
    entry = _rg_items.item(name, config, job["draw"])
    return {"question": entry["question"], "solution": _rg_items.solution(entry)}
