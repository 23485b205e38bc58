"""Time of Oat's update on the same episodes: one row per episode, and one row per turn.

    .venvs/oat/bin/python benchmarks/oat_rows/run.py

The adapter puts the turns of an episode into one row. Oat's own rows are a prompt and a response,
as the adapter's were until then: that layout is made here, from the rows of the adapter. Both train
a copy of the same tiny model on the same episodes, in turns, so that noise of the machine affects
both; the first gradients must have the same norm. Writes ``result.json``; exits with 1 unless the
update on the last environment is three times as fast.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.hardware import describe_machine
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_oat.cpu.in_process import InProcessLearner, MemoryClient, make  # installs stand-ins
from gem_oat.launch import arguments
from gem_oat.rollout import RowData, to_data
from gem_oat.rows import SegmentRow

RESULT = Path(__file__).with_name("result.json")
BASELINES = ("guess-the-number-easy", "tower-of-hanoi-easy")
LEAST = 3.0


class Timed(InProcessLearner):
    """Notes the seconds of each update, and the tokens that it computes."""

    def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        infos: dict[str, Any] = super().learning_step(trajectory)
        self.seconds = time.perf_counter() - began
        self.tokens = int(trajectory["attention_mask"].sum())
        return infos


def main() -> int:
    """Measure each environment and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=16, help="(default: %(default)s)")
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    torch.set_num_threads(1)
    load_before = os.getloadavg()[0]
    cells = {name: measure(name, options.episodes, options.rounds) for name in BASELINES}
    machine = describe_machine()
    result = {
        "rounds": options.rounds,
        "episodes": options.episodes,
        "environments": cells,
        "load": [load_before, os.getloadavg()[0]],
        **{key: machine[key] for key in ("commit", "versions", "python", "processor", "cores")},
    }
    text = json.dumps(result, indent=1) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    same = all(cell["gradient_norms_differ_by"] < 1e-5 for cell in cells.values())
    return 0 if same and cells[BASELINES[-1]]["times_faster"] >= LEAST else 1


def measure(baseline: str, episodes: int, rounds: int) -> dict[str, Any]:
    """Return the median seconds of an update in both layouts, their tokens and first gradients."""
    overrides = [f"batch.episodes={episodes}", f"train.steps={rounds}", "algorithm.epochs=1"]
    recipe = load_recipe(baseline, "tiny", overrides)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run", recipe, "oat")
        per_episode = learner(recipe, run)
        handle = per_episode.actors[0].actor.step(["0/0/1"], [])
        rows = MemoryClient(None).deserialize_ipc(handle)
        per_turn = learner(recipe, run)
        layouts = [(per_episode, rows), (per_turn, by_turn(rows))]
        made = [[update(trainer, data, n) for trainer, data in layouts] for n in range(rounds)]
    (norm, _), (other, _) = made[0]
    seconds, former = (median(round_[n][1] for round_ in made) for n in range(2))
    return {
        "turns": sum(len(row.row.turns) for row in rows),
        "tokens": per_episode.tokens,
        "tokens_row_per_turn": per_turn.tokens,
        "update_seconds": round(seconds, 4),
        "update_seconds_row_per_turn": round(former, 4),
        "times_faster": round(former / seconds, 2),
        "gradient_norm": norm,
        "gradient_norms_differ_by": abs(norm - other) / other,
    }


def learner(recipe: Recipe, run: RunDir) -> Any:
    """Return a learner with the initial weights, ready for an update."""
    made: Any = make(arguments(recipe, run), Timed)
    made._init(made.args, made.actors)
    made.actors[0].actor.init(0, "")
    made.steps = 0
    made.gradient_update_st = 0.0
    return made


def by_turn(rows: list[RowData]) -> list[RowData]:
    """Return a row for each turn: all that came before it is computed again."""
    turns = [turn for data in rows for turn in data.row.turns]
    return [to_data(SegmentRow([*turn.prompt, *turn.response], (turn,))) for turn in turns]


def update(trainer: Any, rows: list[RowData], done: int) -> tuple[float, float]:
    """Make one update; return the norm of its gradient and its seconds."""
    trainer.process_feedback_data(rows)
    trainer.learn(done + 2)  # Oat prints a row in its first round
    return trainer.losses["grad_norm"], trainer.seconds


if __name__ == "__main__":
    sys.exit(main())
