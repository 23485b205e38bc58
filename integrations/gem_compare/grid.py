"""The grid: baselines x trainers x algorithms x seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gem_core.errors import unknown
from gem_core.runs.recipe.checks import require_name
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import list_trainers

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "rebn": ("algorithm.estimator=rebn", "batch.group_size=1"),
    "reinforce": ("algorithm.estimator=reinforce", "batch.group_size=1"),
    "grpo": ("algorithm.estimator=grpo", "batch.group_size=8"),
    "ppo": ("algorithm.estimator=gae", "batch.group_size=1"),
}
"""Recipe overrides of each algorithm of a comparison; all other keys are the baseline's."""


@dataclass(frozen=True, order=True)
class Cell:
    """One run of a comparison.

    Attributes:
        baseline: name or file of the baseline.
        trainer: name of the trainer.
        algorithm: a key of `ALGORITHMS`.
        seed: seed of the run.
    """

    baseline: str
    trainer: str
    algorithm: str
    seed: int

    @property
    def name(self) -> str:
        """The cell's directory inside the comparison's, and its name in progress lines."""
        return f"{Path(self.baseline).stem}/{self.trainer}/{self.algorithm}/seed{self.seed}"

    def overrides(self, extra: Sequence[str] = ()) -> list[str]:
        """Return the recipe overrides of this cell; ``extra`` overrides take precedence."""
        return [*ALGORITHMS[self.algorithm], f"seed={self.seed}", *extra]

    def recipe(self, profile: str | None, extra: Sequence[str] = ()) -> Recipe:
        """Return the resolved recipe."""
        return load_recipe(self.baseline, profile, self.overrides(extra))


def make_grid(
    baselines: Iterable[str],
    trainers: Iterable[str],
    algorithms: Iterable[str],
    seeds: Iterable[int],
) -> list[Cell]:
    """Return all cells, in an order in which a grid that is stopped early is balanced.

    Every baseline has its first cell before one has its second; the trainers and algorithms rotate
    from baseline to baseline, and the seed changes last.

    Raises:
        RecipeError: the name of a baseline's file is no name of a folder.
        UnknownNameError: a trainer or an algorithm does not exist.
    """
    trainers = list(trainers)
    algorithms = list(algorithms)
    known = list_trainers()
    for name in trainers:
        if name not in known:
            raise unknown("trainer", name, known, f"Known: {list(known)}.")
    for name in algorithms:
        if name not in ALGORITHMS:
            raise unknown("algorithm", name, ALGORITHMS, f"Known: {list(ALGORITHMS)}.")
    baselines = list(baselines)
    for baseline in baselines:
        require_name(Path(baseline).stem, "baseline")
    variants = list(product(algorithms, trainers))
    cells = []
    for seed, turn in product(seeds, range(len(variants))):
        for place, baseline in enumerate(baselines):
            algorithm, trainer = variants[(turn + place) % len(variants)]
            cells.append(Cell(baseline, trainer, algorithm, seed))
    return cells
