"""Compare a trainer with the reference over a whole recorded run, after every training step.

The replay module of a trainer has ``replay_run(recipe, batches, model_dir, on_step)``, which trains
on the batches of `gem_parity.recorded.recorded_run` with the trainer's own loop, optimizer and
weight export, and ``TRAITS``, what the trainer's code does in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.bounds import WEIGHTS
from gem_parity.diagnosis import OptimizerLog, first_difference, not_compared
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, recorded_run
from gem_parity.reference_trainer import ReferenceTrainer, relative_difference
from gem_parity.traits import Traits

ReplayRun = Callable[[Recipe, Sequence[FrozenBatch], str, OnStep], None]
"""``replay_run(recipe, batches, model_dir, on_step)`` of an adapter."""


@dataclass
class Distance:
    """How far weights are from the reference's.

    Attributes:
        relative: L2 norm of the differences of all weights over the norm of all weights.
        largest: the largest single difference.
        name: the parameter that has it.
    """

    relative: float
    largest: float
    name: str


@dataclass
class RunMeasure:
    """The comparison of one trainer over one recorded run.

    Attributes:
        policy: after every step, the first entry before the first.
        critic: the same of the critic; empty without one.
        moved: relative L2 distance that the reference's policy moved in the run.
        clipped: tokens whose gradient the clip took away, below and above.
        traits: what the trainer does in its own way, and the reference therefore too.
        faults: what is out of bounds; empty = equal. The first quantity that differed comes first.
        not_compared: quantities that the trainer does not report.
    """

    policy: list[Distance] = field(default_factory=list)
    critic: list[Distance] = field(default_factory=list)
    moved: float = 0.0
    clipped: list[int] = field(default_factory=list)
    traits: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: of every step the relative difference, all of the last one."""
        data = asdict(self)
        for name in ("policy", "critic"):
            distances = data[name]
            data[name] = {
                "relative": [float(f"{distance['relative']:.3g}") for distance in distances],
                "last": distances[-1] if distances else None,
            }
        return data


class Follower:
    """An ``on_step`` that trains the reference beside a trainer and compares after every step.

    As a context it also compares the trainer's optimizer steps, which it notes in this process.

    Args:
        recipe: the experiment.
        batches: of the run.
        model_dir: the initial policy.
        traits: what the trainer does in its own way.
        dtype: precision of the reference.
    """

    def __init__(
        self,
        recipe: Recipe,
        batches: Sequence[FrozenBatch],
        model_dir: str,
        traits: Traits,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.recipe = recipe
        self.batches = batches
        self.model_dir = model_dir
        self.traits = traits
        self.dtype = dtype
        self.reference: ReferenceTrainer | None = None
        self.result = RunMeasure(traits=traits.differences())
        self.log = OptimizerLog()
        self.diagnosis: str | None = None

    def __enter__(self) -> Follower:
        self.log.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.log.__exit__()

    def __call__(self, done: int, trace: StepTrace) -> None:
        """Compare after ``done`` steps; see `gem_parity.recorded.OnStep`."""
        if done != len(self.result.policy):
            raise GemError(f"Step {done} was reported after {len(self.result.policy)} reports.")
        if self.reference is None:
            self.reference = ReferenceTrainer(
                self.recipe,
                self.model_dir,
                self.traits,
                trace.critic,
                self.dtype,
                trace.weights,
            )
            self.initial = self.reference.weights()
        else:
            self._check_minibatches(done, trace)
            self.reference.step(self.batches[done - 1], trace)
            self._diagnose(done, trace)
        expected = self.reference.weights()
        self.result.policy.append(Distance(*relative_difference(trace.weights, expected)))
        critic = self.reference.critic_weights()
        if critic:
            self.result.critic.append(Distance(*relative_difference(trace.critic, critic)))

    def _diagnose(self, done: int, trace: StepTrace) -> None:
        """Note the first quantity that differs in the run."""
        assert self.reference is not None  # the caller made it
        wanted = self.reference.steps
        updates = self.log.take(wanted[0].size if wanted else 0)
        self.result.not_compared = not_compared(trace.rows, updates)
        if self.diagnosis is None:
            difference = first_difference(trace.rows, self.reference.rows, updates, wanted)
            self.diagnosis = difference and f"step {done}: {difference}"

    def finish(self) -> RunMeasure:
        """Return the comparison after the last step."""
        result = self.result
        if len(result.policy) != len(self.batches) + 1:
            result.faults.append(f"{len(result.policy) - 1} of {len(self.batches)} steps")
        if self.reference is not None:
            result.moved = relative_difference(self.reference.weights(), self.initial)[0]
            result.clipped = self.reference.clipped
        if self.diagnosis is not None:
            result.faults.append(self.diagnosis)
        for name, distances in (("policy", result.policy), ("critic", result.critic)):
            first = next((n for n, d in enumerate(distances) if not d.relative <= WEIGHTS), None)
            if first is not None:
                worst = distances[-1]
                result.faults.append(
                    f"{name} out of bounds after step {first}; at the end by {worst.relative:.1e}, "
                    f"{worst.largest:.1e} in {worst.name}"
                )
        return result

    def _check_minibatches(self, done: int, trace: StepTrace) -> None:
        """Note where the trainer's minibatches are not what the recipe asks for."""
        algorithm = self.recipe.algorithm
        number = self._number_of_minibatches(done)
        updates = algorithm.epochs * number
        if len(trace.minibatches) != updates:
            self.result.faults.append(
                f"step {done} had {len(trace.minibatches)} optimizer steps, not {updates}"
            )
        wanted = self._turns_of(done)
        for epoch in range(algorithm.epochs):
            part = trace.minibatches[epoch * number : (epoch + 1) * number]
            trained = [unit for units in part for unit in units]
            covered = sorted(
                (e, t) for e, turn in trained for t in self._turns(done, e) if turn in (None, t)
            )
            if covered != wanted:
                self.result.faults.append(f"epoch {epoch} of step {done} is not the whole batch")

    def _number_of_minibatches(self, done: int) -> int:
        """Return into how many minibatches the trainer should divide the batch."""
        minibatches = self.recipe.algorithm.minibatches
        if self.traits.divided == "episodes":
            return minibatches
        segments = (s for e in self.batches[done - 1].episodes for s in e.segments)
        trained = sum(any(segment.loss_mask) for segment in segments)
        return math.ceil(trained / self.traits.minibatch_size(self.recipe, trained))

    def _turns(self, done: int, episode: int) -> list[int]:
        turns = self.batches[done - 1].episodes[episode].turns
        return [number for number, turn in enumerate(turns) if not turn.aborted]

    def _turns_of(self, done: int) -> list[tuple[int, int]]:
        episodes = range(len(self.batches[done - 1].episodes))
        return [(episode, turn) for episode in episodes for turn in self._turns(done, episode)]


def teacher_forced(
    recipe: Recipe, model_dir: str, replay_run: ReplayRun, traits: Traits
) -> RunMeasure:
    """Return the comparison of a trainer with the reference over the recorded run of ``recipe``."""
    with Follower(recipe, recorded_run(recipe), model_dir, traits) as follower:
        replay_run(recipe, recorded_run(recipe), model_dir, follower)
    return follower.finish()
