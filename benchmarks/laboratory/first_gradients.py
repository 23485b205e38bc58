"""The first gradient of a trainer on episodes of a process, compared with the laboratory's.

    python benchmarks/laboratory/first_gradients.py TRAINER MODEL_DIR OUT.json

It runs in the trainer's environment. The trainer's own advantages (gem-core's estimator in its
place), loss and backward pass make its gradient, through the replay of ``benchmarks/parity``. The
laboratory's is `batches.aggregate`, as everywhere here: advantages of the same trajectories, and
the score of each turn, which is the gradient of the action's log-probability by all weights of the
model, in float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import turn_estimators  # noqa: F401  (registers its estimators)
from batches import Case, advantages, aggregate, draw, turns_of
from exact import list_trajectories
from played import play_trajectories
from processes import PROCESSES, FloatArray
from transformers import AutoModelForCausalLM

from gem_core.episodes.data import Episode
from gem_core.runs.directory.run_dir import describe_machine
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import check, get_trainer
from gem_parity.replays import load_replay

EPISODES, GROUP_SIZE, SEED = 32, 4, 0
ESTIMATORS = ("reinforce", "rebn", "grpo", "dr_grpo", "rloo")
EVERY_CASE = "tools"
"""The process on which every estimator is compared."""
BOUND = 1e-5
"""Largest relative L2 difference of two gradients that count as the same."""


class Compared(NamedTuple):
    """A trainer's gradient against the laboratory's.

    Attributes:
        difference: norm of the difference / norm of the laboratory's.
        degrees: angle between them.
        norm: norm of the laboratory's gradient.
        turns: number of turns in the batch.
    """

    difference: float
    degrees: float
    norm: float
    turns: int


def compare(trainer: str, process: str, case: Case, model_dir: str) -> Compared:
    """Make the first gradient of a trainer on a drawn batch, and compare it.

    Args:
        trainer: it must be installed here.
        process: name of the process.
        case: estimator, discount and aggregation.
        model_dir: a causal language model over bytes.
    """
    t = list_trajectories(PROCESSES[process])
    chosen, group = draw(t, np.random.default_rng(SEED), 1, EPISODES, GROUP_SIZE)
    episodes = play_trajectories(t, chosen[0], group, process)
    recipe = recipe_of(case)
    replayed = load_replay(trainer).replay(recipe, episodes, model_dir)
    turns, episode = turns_of(t, chosen[0])
    names, scores = model_scores(episodes, model_dir)
    own = aggregate(advantages(t, turns, episode, group, case), scores, episode, case.aggregation)
    if set(names) != replayed.gradients.keys():
        raise ValueError(f"Other parameters: {sorted(set(names) ^ replayed.gradients.keys())}.")
    theirs = -np.concatenate([replayed.gradients[name].ravel() for name in names])
    size = float(np.linalg.norm(own))
    across = theirs - own * (theirs @ own) / size**2
    degrees = float(np.degrees(np.arctan2(np.linalg.norm(across), theirs @ own / size)))
    return Compared(float(np.linalg.norm(theirs - own)) / size, degrees, size, turns.size)


def recipe_of(case: Case) -> Recipe:
    """Return the recipe of a case: one update on the whole batch, nothing but the policy loss."""
    return load_recipe(
        "guess-the-number-easy",
        "tiny",
        [
            f"batch.episodes={EPISODES}",
            f"batch.group_size={GROUP_SIZE}",
            "algorithm.epochs=1",
            f"algorithm.estimator={case.estimator}",
            *_discount(case),
            f"algorithm.loss_aggregation={case.aggregation}",
            "sampling.temperature=1.0",
        ],
    )


def model_scores(episodes: Sequence[Episode], model_dir: str) -> tuple[list[str], FloatArray]:
    """Return the model's parameters, and the score of every turn by them, float64 [turns, K]."""
    model = AutoModelForCausalLM.from_pretrained(model_dir).double()
    names, weights = zip(*model.named_parameters(), strict=True)
    rows = []
    for episode in episodes:
        (segment,) = episode.segments
        ids = torch.tensor([segment.token_ids])
        logp = torch.log_softmax(model(input_ids=ids).logits[0].double(), dim=-1)
        for _, start, end in segment.spans:
            assert end == start + 1, "an action is one token"
            own = torch.autograd.grad(
                logp[start - 1, segment.token_ids[start]], weights, retain_graph=True
            )
            rows.append(torch.cat([part.flatten() for part in own]).numpy())
    return list(names), np.array(rows)


def _discount(case: Case) -> list[str]:
    """Return gamma as an override, where the estimator reads it."""
    grouped = case.estimator in ("grpo", "dr_grpo", "rloo")
    return [] if grouped else [f"algorithm.gamma={case.gamma}"]


def cases() -> list[tuple[str, Case]]:
    """Return process and case of every comparison: ReBN on all, every estimator on one."""
    rebn = Case("rebn", aggregation="token")
    others = [Case(name, aggregation="token") for name in ESTIMATORS if name != "rebn"]
    others += [rebn._replace(gamma=0.9), rebn._replace(aggregation="sequence")]
    return [*((name, rebn) for name in PROCESSES), *((EVERY_CASE, case) for case in others)]


def main() -> None:
    """Compare every process and case, and write the figures."""
    trainer, model_dir, out = sys.argv[1:]
    machine = describe_machine()
    rows: list[dict[str, Any]] = [
        {
            "process": process,
            "estimator": case.estimator,
            "gamma": case.gamma,
            "aggregation": case.aggregation,
            **compare(trainer, process, case, model_dir)._asdict(),
        }
        for process, case in cases()
    ]
    result = {
        "trainer": trainer,
        "version": check(get_trainer(trainer)).version,
        "environment": {key: machine[key] for key in ("versions", "python", "processor")},
        "rows": rows,
    }
    Path(out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
