"""The pages of the measured updates: what ``plan`` says of each, and what fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core.results.tables import markdown_table
from gem_core.runs.recipe.load import load_recipe
from gem_preflight.estimate import Plan, estimate

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASELINE = "guess-the-number-easy"
ALL = ("trl", "verl", "openrlhf", "oat", "rl2")
ESTIMATORS = {
    "rebn": ["algorithm.estimator=rebn"],
    "grpo": ["algorithm.estimator=grpo", "batch.group_size=8"],
    "ppo": ["algorithm.estimator=gae"],
}
"""The paper's algorithms: the keys of the recipe for each."""
GPUS = (1, 8)


def planned(row: dict[str, Any]) -> Plan:
    """Return the plan of a measured case, at the profile ``paper``."""
    nodes = max(1, row["gpus"] // 8)
    keys = [
        f"model.path=Qwen/{row['model']}",
        f"limits.max_context_tokens={row['tokens']}",
        f"hardware.nodes={nodes}",
        f"hardware.gpus_per_node={row['gpus'] // nodes}",
        f"batch.episodes={max(128, 4 * row['gpus'])}",
    ]
    return estimate(load_recipe(BASELINE, "paper", keys), row["trainer"], 80)


def comparison(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of what was measured and planned."""
    lines = []
    for row in sorted(rows, key=lambda row: (ALL.index(row["trainer"]), row["gpus"], row["peak"])):
        plan = planned(row)
        found, said = row["peak"] / 1e9, plan.total / 1e9
        ratio = f"{said / found:.2f}"
        case = (row["trainer"], row["model"], str(row["gpus"]))
        lines.append((*case, f"{found:.1f}", f"{said:.1f}", ratio))
    head = ("trainer", "model", "GPUs", "live tensors, GB", "plan, GB", "plan / live")
    return markdown_table(head, lines)


def verdicts() -> str:
    """Return what fits at the profile ``paper``, by the plan: recipes of one answer together."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for path in sorted((ROOT / "recipes" / "baselines").glob("*.toml")):
        groups.setdefault(_answers(path.stem), []).append(path.stem)
    parts = []
    for answers, names in groups.items():
        text = f"{len(names)} recipes with {answers[0]} and rows of {answers[1]} tokens"
        parts.append(f"{text} ({', '.join(names)}):\n\n{fits_table(answers)}")
    return "\n\n".join(parts)


def fits_table(answers: tuple[Any, ...]) -> str:
    """Return the table of what `_answers` found."""
    head = ("trainer", *(f"{name}, {gpus}x80" for name in ESTIMATORS for gpus in GPUS))
    return markdown_table(head, answers[2])


def _answers(name: str) -> tuple[Any, ...]:
    recipes = [
        load_recipe(name, "paper", [*keys, f"hardware.gpus_per_node={gpus}"])
        for keys in ESTIMATORS.values()
        for gpus in GPUS
    ]
    cells = tuple((trainer, *(_cell(recipe, trainer) for recipe in recipes)) for trainer in ALL)
    return recipes[0].model.path, recipes[0].limits.max_context_tokens, cells


def _cell(recipe: Any, trainer: str) -> str:
    plan = estimate(recipe, trainer, 80)
    return f"{plan.total / 1e9:.0f} {'no' if plan.problems else 'fits'}"


def write_pages(rows: Sequence[dict[str, Any]]) -> None:
    """Write both tables into ``docs/gpu.md``, and the first into the README of this folder."""
    write(HERE / "README.md", {"memory": comparison(rows)})
    write(ROOT / "docs" / "gpu.md", {"memory": comparison(rows), "fits": verdicts()})


def write(path: Path, parts: dict[str, str]) -> None:
    """Put each part between its two markers."""
    text = path.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = (
            f"<!-- {name}: made by benchmarks/gpu_memory/run.py -->",
            f"<!-- end {name} -->",
        )
        pattern = f"{re.escape(begin)}.*{re.escape(end)}"
        block = f"{begin}\n\n{part.strip()}\n\n{end}".replace("\\", r"\\")
        text = re.sub(pattern, block, text, flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")
