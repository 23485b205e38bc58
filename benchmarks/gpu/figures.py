"""What is computed from a run's metrics, and the page of all trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from gem_core.results import markdown_table
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.provenance import short

HEAD = (
    "trainer", "version", "state", "status", "s", "sampled tokens/s", "trained tokens/s",
    "engine busy", "peak GB", "GPU busy", "engine against trainer",
)  # fmt: skip

REHEARSAL = (
    "Rehearsal on a CPU, not a GPU result: a tiny model, and stand-ins for engines and kernels."
)
"""What the page of a run without a GPU begins with."""
RANDOM_MODEL = (
    "The model has the sizes of Qwen3-0.6B and random weights: an episode is a turn of nonsense. "
    "Speed, memory and the difference of log-probabilities need no trained weights."
)
"""What the page of a run with `random_model` says."""


def figures(run: RunDir) -> dict[str, Any]:
    """Return the figures of a finished run; rates are those of the steps after the first.

    The keys: ``sampled_tokens_per_s`` (tokens that the engine sampled, by the wall time of playing
    the episodes), ``trained_tokens_per_s`` (tokens of all sequences, by the wall time of the
    optimizer steps, each epoch counted), ``engine_busy`` (share of a step in which episodes are
    played), ``logprob_difference`` (of each step, nats; ``None`` where the trainer reports none).
    """
    rows = run.metrics()
    epochs = run.recipe.algorithm.epochs
    later = rows[1:]
    return {
        "steps": len(rows),
        "versions": run.result["versions"],
        "commit": run.info["commit"],
        "sampled_tokens_per_s": _rate(later, "tokens/action", "time/rollout"),
        "trained_tokens_per_s": epochs * _rate(later, "tokens/all", "time/update"),
        "engine_busy": sum(r["time/rollout"] for r in later) / sum(r["time/step"] for r in later),
        "logprob_difference": [row.get("rollout/logprob_difference") for row in rows],
        "seconds_of_steps": [row["time/step"] for row in rows],
        "metrics": rows,
    }


def _rate(rows: Sequence[Mapping[str, float]], tokens: str, seconds: str) -> float:
    return sum(r[tokens] * r["episodes"] for r in rows) / sum(r[seconds] for r in rows)


def page(rows: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """Return the Markdown page of all trainers that have run.

    Args:
        rows: what was recorded of each trainer.
        machine: what was recorded of the machine; ``rehearsal`` says whether no GPU took part,
            ``random_model`` (absent in older reports) whether the weights were random.
    """
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    lines = [
        "# A few steps with each trainer",
        "",
        *([f"**{REHEARSAL}**", ""] if machine["rehearsal"] else []),
        *([RANDOM_MODEL, ""] if machine.get("random_model") else []),
        f"{gpus}; {machine['processor']}, {machine['cores']} cores; commit "
        f"`{short(machine['commit'])}`; started {machine['started']}"
        + "".join(f"; `{text}`" for text in machine["variables"])
        + ".",
        "",
        markdown_table(HEAD, [_row(row) for row in rows]),
    ]
    for row in rows:
        if row["status"] != "trained":
            lines += [f"## {_name(row)}: {row['status']}", "", "```"]
            lines += [*row.get("log", []), "```", ""]
    return "\n".join(lines)


def _name(row: Mapping[str, Any]) -> str:
    """Return the trainer, and the setting that it ran with beside others, if there are several."""
    return f"{row['trainer']}, `{row['setting']}`" if "setting" in row else str(row["trainer"])


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    doctor = row.get("doctor", {})
    start = (_name(row), doctor.get("version") or "-", doctor.get("state", "-"), row["status"])
    whole = (*start, f"{row['seconds']:.0f}")
    if row["status"] != "trained":
        return (*whole, *["-"] * (len(HEAD) - len(whole)))
    gpus = (row["gpu"] or {}).values()
    peak = max((gpu["peak_mib"] for gpu in gpus), default=None)
    differences = [value for value in row["logprob_difference"] if value is not None]
    return (
        *whole,
        f"{row['sampled_tokens_per_s']:.0f}",
        f"{row['trained_tokens_per_s']:.0f}",
        f"{row['engine_busy']:.0%}",
        f"{peak * (1 << 20) / 1e9:.1f}" if peak is not None else "-",
        f"{mean(gpu['busy_percent'] for gpu in gpus):.0f}%" if gpus else "-",
        f"{max(differences):.1e}" if differences else "-",
    )
