"""The section of docs/engines.md about a pretrained model, from ``results/TRAINER-gemma*.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gem_core.results import markdown_table

TRAINERS = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "oat": "Oat"}
DTYPES = {"": "float32", "-bfloat16": "bfloat16"}
COLUMNS = (
    "trainer",
    "weights",
    "steps",
    "success before",
    "after",
    "engine against trainer, mean of a step",
    "s",
    "commit",
)
HEAD = """\
## A pretrained model

Gemma 3 270M on held-out sums (`chain-sum` in the profile gemma, [real-model.md](real-model.md))
with the same engines: all weights are trained, and each token of its vocabulary has a
log-probability on both sides. The bound of the difference is 1e-3 in float32 and 0.05 in bfloat16.
Three steps show the path and the agreement; in twenty steps success must rise. Rows of other
commits can have another warm start. OpenRLHF's vLLM computes in bfloat16 alone. Intervals are 95 %,
of the evaluation tasks. By the cases `TRAINER-gemma` and `TRAINER-gemma-bfloat16`."""


def pretrained(results: Path) -> str:
    """Return the section; empty where nothing was measured."""
    rows = []
    for name, trainer in TRAINERS.items():
        for suffix, dtype in DTYPES.items():
            path = results / f"{name}-gemma{suffix}.json"
            if path.is_file():
                data = json.loads(path.read_text(encoding="utf-8"))
                rows.append((trainer, dtype, *outcome(data)))
    return f"{HEAD}\n\n{markdown_table(COLUMNS, rows).strip()}" if rows else ""


def success(metrics: dict[str, float]) -> str:
    """Return success with its interval."""
    low, high = metrics["success/low"], metrics["success/high"]
    return f"{metrics['success/mean']:.3f} [{low:.3f}, {high:.3f}]"


def outcome(data: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a run from its steps to its commit."""
    return (
        str(data["steps"]),
        success(data["before"]),
        success(data["after"]),
        f"{max(data['logprob_difference']):.1e}",
        f"{data['seconds']:.0f}",
        f"`{data['commit'][:9]}`",
    )
