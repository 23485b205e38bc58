"""Replay the frozen episodes in one trainer, in that trainer's environment.

``python benchmarks/parity/worker.py TRAINER MODEL_DIR OUT.json``
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from transformers import AutoModelForCausalLM

from gem_core.advantages import list_estimators
from gem_core.episodes.data import Episode
from gem_core.errors import RecipeError
from gem_core.parity.measure import measure
from gem_core.parity.reference import reference
from gem_core.parity.replay import expected_rows
from gem_core.training.recipe import Recipe, load_recipe
from gem_core.training.runs import describe_machine
from gem_core.training.trainers import check, get_trainer

HERE = Path(__file__).parent
AGGREGATIONS = {"token": [], "sequence": [], "constant": ["algorithm.loss_constant=100"]}


def episodes() -> list[Episode]:
    """Return a new copy of the frozen batch, because replays may change it."""
    lines = (HERE / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    return [Episode.from_dict(json.loads(line)) for line in lines]


def cases() -> dict[str, Recipe]:
    """Return every critic-free estimator, and ReBN under every loss aggregation."""
    base = ["batch.episodes=32", "batch.group_size=2", "algorithm.epochs=1"]
    base += ["limits.max_context_tokens=1024"]  # the longest frozen episode has over 512 tokens
    names = {f"{name} / token": (name, "token") for name in list_estimators() if name != "gae"}
    names |= {f"rebn / {how}": ("rebn", how) for how in AGGREGATIONS}
    return {
        case: load_recipe(
            "guess-the-number-easy",
            "tiny",
            [
                *base,
                f"algorithm.estimator={estimator}",
                f"algorithm.loss_aggregation={how}",
                *AGGREGATIONS[how],
            ],
        )
        for case, (estimator, how) in names.items()
    }


def run(trainer: str, model_dir: str) -> dict[str, object]:
    """Measure every case; for one that the trainer refuses, the reason is recorded."""
    config = import_module(f"gem_{trainer}.config")
    replay = import_module(f"gem_{trainer}.cpu.replay").replay
    results: dict[str, object] = {}
    for case, recipe in cases().items():
        try:
            config.translate(recipe)
        except RecipeError as error:
            results[case] = {"refused": str(error)}
            continue
        model = AutoModelForCausalLM.from_pretrained(model_dir).float()
        expected = reference(recipe, expected_rows(recipe, episodes()), model)
        results[case] = measure(replay(recipe, episodes(), model_dir), expected).to_dict()
    return results


def main() -> None:
    """Measure one trainer and write the figures."""
    trainer, model_dir, out = sys.argv[1:]
    version = check(get_trainer(trainer)).version
    results = {"trainer": trainer, "version": version, "cases": run(trainer, model_dir)}
    machine = describe_machine()
    results["environment"] = {k: machine[k] for k in ("versions", "python", "processor")}
    Path(out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
