"""Why a start learns or does not: signal and noise of the gradient, exploration, capacity, rate.

    .venvs/trl/bin/python benchmarks/learning/run.py               # first measure what is missing
    .venvs/trl/bin/python benchmarks/learning/run.py --table-only  # from the committed results

Everything is measured on validation seeds (100 and above), which choose settings; reported seeds
are 0 to 4. `conditions.toml` says what is measured, `page.py` writes the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from gradient import signal_and_noise
from page import write_page

from gem_core.episodes.rollout import play_batch
from gem_core.evaluation.controls.play import play_controls, read_trained
from gem_core.evaluation.local import evaluate, load_policy
from gem_core.evaluation.progress import no_progress
from gem_core.runs import provenance
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.task_overlap import task_overlap
from gem_core.training.experiment import run_experiment
from gem_core.training.tiny import model_path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
FIRST_SEED = 100
"""The first validation seed."""
BATCHES = 12
"""Batches of one policy, from which the mean and the variance of its gradient are estimated."""
SAMPLES = 8
"""Episodes of one task in these batches, to see how often their success differs."""


class Condition(msgspec.Struct, forbid_unknown_fields=True):
    """A recipe: a baseline in the tiny profile, and what differs."""

    set: list[str]
    baseline: str = "guess-the-number-easy"


class Conditions(msgspec.Struct, forbid_unknown_fields=True):
    """All of ``conditions.toml``, by what is measured and by name."""

    start: dict[str, Condition]
    capacity: dict[str, Condition]
    training: dict[str, Condition]


def main() -> int:
    conditions = msgspec.toml.decode((HERE / "conditions.toml").read_bytes(), type=Conditions)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[FIRST_SEED], help="(%(default)s)")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--table-only", action="store_true", help="measure nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        for seed in arguments.seeds:
            for kind in arguments.only:
                for name, condition in getattr(conditions, kind).items():
                    measure(kind, name, condition, seed)
    write_page(HERE / "README.md", RESULTS)
    return 0


def measure(kind: str, name: str, condition: Condition, seed: int) -> None:
    """Measure one condition and write its file, unless there is one."""
    target = RESULTS / kind / f"{name}-seed{seed}.json"
    if target.exists():
        return
    overrides = [*condition.set, f"seed={seed}"]
    recipe = load_recipe(condition.baseline, "tiny", overrides)
    began = time.perf_counter()
    figures = MEASURES[kind](recipe)
    row = {
        "baseline": condition.baseline,
        "set": overrides,
        "seed": seed,
        "commit": provenance.commit(),
        "seconds": round(time.perf_counter() - began, 1),
        **figures,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    print(name, seed, figures, flush=True)


def played(recipe: Recipe, model: str | Path) -> dict[str, Any]:
    """Return the success on the evaluation's tasks, sampled and greedy."""
    from msgspec.structs import replace

    rows: dict[str, Any] = {"episodes": recipe.eval.episodes}
    for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        table = replace(recipe.eval, temperature=temperature)
        figures = evaluate(replace(recipe, eval=table), model)
        rows[name] = figures["success/mean"]
        rows[f"{name}_turns"] = figures["turns/mean"]
    return rows


def start(recipe: Recipe) -> dict[str, Any]:
    """Measure an untrained policy: its success, its exploration, its gradient."""
    from msgspec.structs import replace

    source = model_path(recipe)
    grouped = replace(recipe, batch=replace(recipe.batch, group_size=SAMPLES))
    batches = []
    with load_policy(
        replace(grouped, eval=replace(recipe.eval, temperature=1.0)), source
    ) as engine:
        factory, policy, _ = engine
        size = recipe.batch.episodes
        for number in range(BATCHES):
            machines = [factory.train(number * size + k) for k in range(size)]
            batches.append(play_batch(machines, policy))
        gradient = signal_and_noise(policy.engine.model, batches, recipe.algorithm)
    groups: dict[int, set[bool]] = {}
    for episode in (episode for batch in batches for episode in batch):
        groups.setdefault(episode.group, set()).add(bool(episode.success))
    return {
        "success": played(recipe, source),
        "mixed_groups": sum(len(outcomes) == 2 for outcomes in groups.values()) / len(groups),
        "gradient": gradient,
    }


def capacity(recipe: Recipe) -> dict[str, Any]:
    """Clone the expert without noise: what a model of this size can represent and be taught."""
    return {"success": played(recipe, model_path(recipe))}


def training(recipe: Recipe) -> dict[str, Any]:
    """Train with TRL; play before and after, and the players without a model."""
    from msgspec.structs import replace

    source = model_path(recipe)
    with tempfile.TemporaryDirectory() as folder:
        without = replace(recipe, eval=replace(recipe.eval, episodes=0))
        run = run_experiment(without, "trl", Path(folder) / "run", log=lambda line: None)
        curve = [round(row["success/mean"], 3) for row in run.metrics()]
        after = played(recipe, run.model)
        trained = read_trained(str(run.path), None, [f"eval.episodes={recipe.eval.episodes}"])
        controls = play_controls(trained, None, Path(folder) / "controls", progress=no_progress)
    record = json.loads((Path(source) / "warm_start.json").read_text(encoding="utf-8"))
    return {
        "overlap": task_overlap(recipe),
        "controls": controls.success,
        "imitated": record["expert"]["success"],
        "before": played(recipe, source),
        "after": after,
        "curve": curve,
    }


MEASURES: dict[str, Callable[[Recipe], dict[str, Any]]] = {
    "start": start,
    "capacity": capacity,
    "training": training,
}

if __name__ == "__main__":
    sys.exit(main())
