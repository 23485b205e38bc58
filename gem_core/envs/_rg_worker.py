"""Runs generators and scorers of reasoning-gym in a worker process of its own."""

from __future__ import annotations

from typing import Any

from gem_core.envs import _rg_items


def run(job: dict[str, Any]) -> Any:
    """Serve ``{"do": "item" | "score", ...}``; see `gem_core.envs._rg_items`."""
    name, config = job["name"], job["config"]
    if job["do"] == "score":
        return _rg_items.score(name, config, job["draw"], job["answer"], job["strict"])
    entry = _rg_items.item(name, config, job["draw"])
    return {"question": entry["question"], "solution": _rg_items.solution(entry)}
