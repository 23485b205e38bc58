"""The items of an evaluation: which tasks it plays, and how often.

Task ``t`` of an environment has the seed ``-1 - t``. No training has negative seeds
(`gem_core.runs.tasks`), and the environments over data play their item ``t`` for it. The first
sample of every task comes first, in the order of a run's own evaluation, so that an evaluation with
one sample plays a run's evaluation episodes, with the same draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gem_core.runs.tasks import Task


@dataclass(frozen=True, slots=True)
class Item:
    """One episode to play.

    Attributes:
        index: number of the item in the evaluation.
        task: number of its task, the same for all samples of the task.
        sample: 0-based number of the sample.
        env: position of the environment.
        seed: seed of ``env.reset``.
    """

    index: int
    task: int
    sample: int
    env: int
    seed: int

    def as_task(self) -> Task:
        """Return what `gem_core.runs.tasks.MachineFactory` makes a machine of."""
        return Task(self.index, self.env, self.seed, group=self.task, split="eval")


def all_items(counts: Sequence[int], samples: int) -> Iterator[Item]:
    """Yield every item: ``samples`` of each task, ``counts`` tasks of each environment."""
    total = sum(counts)
    for sample in range(samples):
        for task, (env, seed) in enumerate(tasks_in_turn(counts)):
            yield Item(sample * total + task, task, sample, env, seed)


def tasks_in_turn(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ``(environment, seed)`` of every task; the environments take turns.

    >>> list(tasks_in_turn([1, 2]))
    [(0, -1), (1, -1), (1, -2)]
    """
    for number in range(max(counts, default=0)):
        for env, count in enumerate(counts):
            if number < count:
                yield env, -1 - number


def divide_tasks(total: int, environments: int) -> list[int]:
    """Return how many of ``total`` tasks each environment has, as a run's evaluation divides them.

    >>> divide_tasks(5, 2)
    [3, 2]
    """
    return [total // environments + (k < total % environments) for k in range(environments)]
