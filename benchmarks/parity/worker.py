"""Replay the frozen episodes in one trainer, in that trainer's environment.

``python benchmarks/parity/worker.py TRAINER MODEL_DIR OUT.json`` (``--help`` for its options)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gem_core.advantages import list_estimators
from gem_core.episodes.data import Episode
from gem_core.errors import RecipeError
from gem_core.policies.models.weights import load_model
from gem_core.runs.directory.run_dir import describe_machine
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import check, get_trainer
from gem_parity.cases import RUNS
from gem_parity.measure import measure
from gem_parity.reference import reference
from gem_parity.replay import expected_rows
from gem_parity.replays import load_replay
from gem_parity.teacher_forced import teacher_forced

HERE = Path(__file__).parent
AGGREGATIONS = {"token": [], "sequence": [], "constant": ["algorithm.loss_constant=100"]}


def main() -> None:
    """Measure one trainer and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer")
    parser.add_argument("model_dir")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, help="steps of every recorded run")
    parser.add_argument("--only", help="one recorded run, and no gradients")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of every run")
    arguments = parser.parse_args()
    trainer = arguments.trainer
    refused = refusals(trainer)
    machine = describe_machine()
    results = {
        "trainer": trainer,
        "version": check(get_trainer(trainer)).version,
        "environment": {key: machine[key] for key in ("versions", "python", "processor")},
        "cases": {} if arguments.only else gradients(trainer, arguments.model_dir, refused),
        "runs": runs(trainer, arguments, refused),
    }
    Path(arguments.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def refusals(trainer: str) -> dict[str, str]:
    """Return what ``refusals.json`` expects of a trainer: key, or key=value -> what it names."""
    table = json.loads((HERE / "refusals.json").read_text(encoding="utf-8"))
    return dict(table.get(trainer, {}))


def episodes() -> list[Episode]:
    """Return a new copy of the frozen batch, because replays may change it."""
    lines = (HERE / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    return [Episode.from_dict(json.loads(line)) for line in lines]


# -- the gradient of the first update -------------------------------------------------------------


def gradients(trainer: str, model_dir: str, refused: Mapping[str, str]) -> dict[str, Any]:
    """Measure the gradient of every case."""
    replay = load_replay(trainer).replay
    results: dict[str, Any] = {}
    for case, overrides in gradient_cases().items():
        recipe = load_recipe("guess-the-number-easy", "tiny", overrides)
        expected_refusal = next((refused[k] for k in _keys(overrides) if k in refused), None)
        answer = translated(trainer, recipe, expected_refusal)
        if answer is None:
            model = load_model(model_dir)
            expected = reference(recipe, expected_rows(recipe, episodes()), model)
            answer = measure(replay(recipe, episodes(), model_dir), expected).to_dict()
        results[case] = answer
    return results


def gradient_cases() -> dict[str, list[str]]:
    """Return every critic-free estimator, and ReBN under every loss aggregation, as overrides."""
    base = ["batch.episodes=32", "batch.group_size=2", "algorithm.epochs=1"]
    base += ["limits.max_context_tokens=1024"]  # the longest frozen episode has over 512 tokens
    names = {f"{name} / token": (name, "token") for name in list_estimators() if name != "gae"}
    names |= {f"rebn / {how}": ("rebn", how) for how in AGGREGATIONS}
    return {
        case: [
            *base,
            f"algorithm.estimator={estimator}",
            f"algorithm.loss_aggregation={how}",
            *AGGREGATIONS[how],
        ]
        for case, (estimator, how) in names.items()
    }


def _keys(overrides: list[str]) -> list[str]:
    """Return how ``refusals.json`` may name the overrides: by key, and by key and value."""
    return [name for text in overrides for name in (text.partition("=")[0], text)]


# -- whole runs -----------------------------------------------------------------------------------


def runs(trainer: str, arguments: argparse.Namespace, refused: Mapping[str, str]) -> dict[str, Any]:
    """Measure the weights after every step of every recorded run."""
    adapter = load_replay(trainer)
    results: dict[str, Any] = {}
    for name, case in RUNS.items():
        if arguments.only not in (None, name):
            continue
        case = replace(case, about=(*case.about, *arguments.set))
        recipe = case.recipe(list(refused), arguments.steps)
        answer = translated(trainer, recipe, case.refusal(refused))
        if answer is None:
            result = teacher_forced(recipe, arguments.model_dir, adapter.replay_run, adapter.TRAITS)
            answer = result.to_dict() | {"left out": case.left_out(refused)}
        results[name] = answer
    return results


def translated(trainer: str, recipe: Recipe, expected: str | None) -> dict[str, Any] | None:
    """Return None where a trainer takes a recipe, as ``refusals.json`` expects.

    Args:
        trainer: its name.
        recipe: the experiment.
        expected: the key that the refusal must name; None where there must be none.

    Returns:
        What is to be recorded instead of figures; any other refusal is a fault.
    """
    config = import_module(f"gem_{trainer}.config")
    try:
        config.translate(recipe)
    except RecipeError as error:
        refusal = {"refused": str(error)}
        if expected is None or expected not in str(error):
            return refusal | {"faults": [f"a refusal that refusals.json does not have: {error}"]}
        return refusal
    if expected is None:
        return None
    return {"refused": "", "faults": [f"{expected} was not refused, as refusals.json has it"]}


if __name__ == "__main__":
    main()
