"""Faults in what a trainer gets, which the comparison with the reference must find.

A fault changes the episodes, or the recipe as a wrong translation would hand it on; the reference
does not know of it. None depends on a trainer, so that every replay can be tried with them: one
that did not report what its trainer does would not find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import msgspec

from gem_core.episodes.data import Episode
from gem_core.errors import GemError, RecipeError
from gem_core.runs.recipe.files import merge, parse_override
from gem_core.runs.recipe.load import override
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.cases import RUNS
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import recorded_run
from gem_parity.teacher_forced import Follower

STEPS = 4
"""Training steps of a run with a fault."""
LR = 1e-3
"""Its learning rate: large, since a short run must find the fault."""
Batches = Sequence[FrozenBatch]
"""The batch of each step."""


@dataclass(frozen=True)
class InputFault:
    """One fault.

    Attributes:
        case: the recorded run that must find it.
        recipe: overrides of what the trainer gets.
        data: changes the episodes on their way into the adapter, in place.
    """

    case: str
    recipe: tuple[str, ...] = ()
    data: Callable[[Batches], None] | None = None


def _episodes(batches: Batches) -> Iterator[Episode]:
    return (episode for batch in batches for episode in batch.episodes)


def shift_masks(batches: Batches) -> None:
    """Train the token after each action's first one instead of it, and one too many at its end."""
    for episode in _episodes(batches):
        for segment in episode.segments:
            length = len(segment.token_ids)
            segment.loss_mask = [0, *segment.loss_mask[:-1]]
            segment.spans = [(t, s + 1, min(e + 1, length)) for t, s, e in segment.spans]


def leave_out_stop_tokens(batches: Batches) -> None:
    """Do not train the last token of an action."""
    for episode in _episodes(batches):
        for segment in episode.segments:
            spans = [(turn, s, max(s + 1, e - 1)) for turn, s, e in segment.spans]
            for (_, _, end), (_, _, kept) in zip(segment.spans, spans, strict=True):
                segment.loss_mask[kept:end] = [0] * (end - kept)
            segment.spans = spans


def shift_rewards(batches: Batches) -> None:
    """Give each turn the reward of the turn before."""
    for episode in _episodes(batches):
        rewards = [0.0, *episode.rewards[:-1]]
        for turn, reward in zip(episode.turns, rewards, strict=True):
            turn.reward = reward


def drop_rewards_at_the_limit(batches: Batches) -> None:
    """Lose the reward of the turn at which the turn limit cut an episode."""
    for episode in _episodes(batches):
        if episode.stop_reason.value == "truncated_turns":
            episode.turns[-1].reward = 0.0


def wrong_groups(batches: Batches) -> None:
    """Put the second episode of each group into the next group."""
    for batch in batches:
        first = batch.episodes[0].index
        groups = [episode.group for episode in batch.episodes]
        for episode in batch.episodes:
            place = episode.index - first
            episode.group = groups[(place + 1) % len(groups)]


def train_failed_episodes(batches: Batches) -> None:
    """Train on episodes whose environment failed."""
    for episode in _episodes(batches):
        if episode.stop_reason.failed:
            for turn in episode.turns:
                turn.aborted = False
            for segment in episode.segments:
                for _, start, end in segment.spans:
                    segment.loss_mask[start:end] = [1] * (end - start)


def no_bootstrap(batches: Batches) -> None:
    """Take an episode that a limit cut for one that ended."""
    for batch in batches:
        for machine in batch.machines:
            vars(machine)["bootstrap_state"] = list


INPUT_FAULTS: dict[str, InputFault] = {
    "stop tokens not trained": InputFault("rebn", data=leave_out_stop_tokens),
    "rewards shifted by a turn": InputFault("rebn", data=shift_rewards),
    "last reward dropped at a turn limit": InputFault("rebn", data=drop_rewards_at_the_limit),
    "gamma ignored": InputFault("rebn", ("algorithm.gamma=1.0",)),
    "statistics over both environments": InputFault("rebn", ("algorithm.options.per_env=false",)),
    "loss aggregation": InputFault("rebn", ("algorithm.loss_aggregation=sequence",)),
    "an epoch too few": InputFault("rebn", ("algorithm.epochs=2",)),
    "one minibatch instead of two": InputFault("rebn", ("algorithm.minibatches=1",)),
    "warm-up a step too long": InputFault("rebn", ("algorithm.warmup_steps=3",)),
    "schedule of another shape": InputFault("rebn", ("algorithm.lr_schedule=linear",)),
    "gradient not clipped": InputFault("rebn", ("algorithm.max_grad_norm=1000.0",)),
    "weight decay left out": InputFault("rebn", ("algorithm.weight_decay=0.0",)),
    "Adam's second beta": InputFault("rebn", ("algorithm.betas=[0.9,0.999]",)),
}
"""Name -> fault, which every replay must find."""


def faulty_recipe(
    fault: InputFault, refused: Sequence[str], overrides: Sequence[str] = ()
) -> Recipe:
    """Return the recipe of the run that must find a fault; the trainer gets `change_recipe` of it.

    Args:
        fault: the fault.
        refused: keys that the trainer refuses.
        overrides: of what the run is not about.
    """
    return override(RUNS[fault.case].recipe(refused, STEPS, overrides), [f"algorithm.lr={LR}"])


def find_fault(fault: InputFault, recipe: Recipe, replay: ModuleType, model_dir: str) -> list[str]:
    """Return what the comparison finds with a fault.

    Args:
        fault: the fault.
        recipe: of the reference, see `faulty_recipe`.
        replay: the trainer's module, see `gem_parity.replays`.
        model_dir: the initial policy.

    Raises:
        RecipeError: the trainer refuses the recipe with the fault.
    """
    batches = recorded_run(recipe)
    if fault.data:
        fault.data(batches)
    with Follower(recipe, recorded_run(recipe), model_dir, replay.TRAITS) as follower:
        try:
            replay.replay_run(change_recipe(recipe, fault.recipe), batches, model_dir, follower)
        except RecipeError:
            raise
        except GemError as error:  # a guard of the adapter may stop the run before
            return [f"{type(error).__name__}: {error}"]
    return follower.finish().faults


def change_recipe(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """Return a recipe with overrides that need not be valid; coefficients may be negative."""
    data = recipe.to_dict()
    for text in overrides:
        data = merge(data, parse_override(text))
    algorithm = data["algorithm"]
    negative = {key: algorithm[key] for key in ("kl_coef", "entropy_coef") if algorithm[key] < 0}
    algorithm |= {key: -value for key, value in negative.items()}
    changed = msgspec.convert(data, type(recipe))
    return msgspec.structs.replace(
        changed, algorithm=msgspec.structs.replace(changed.algorithm, **negative)
    )
