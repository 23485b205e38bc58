"""Which weights sampled a turn, and the engines that keep old ones for ``sampling.staleness``.

A version of the weights is the number of training steps behind them: training step n begins with
version n - 1. A *virtual clock* decides which version samples a turn of a batch: not when weights
arrive, but the step that the episode belongs to and the turn's number (`pick_version`). Trainers
that sample while they train then draw the same tokens whatever else the machine does, and those
that do not can be given weights as old as the others'.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir

if TYPE_CHECKING:
    from gem_core.episodes.data import Completion, Episode, Turn
    from gem_core.episodes.machine import EpisodeMachine
    from gem_core.policies.engine.asynchronous import AsyncEngine
    from gem_core.policies.engine.engine import Engine, EngineRequest
    from gem_core.runs.recipe.recipe import Recipe

VERSION = "gem_version"
"""What an adapter names a version by, to the engine of a CPU and in its answer."""

AnyEngine = TypeVar("AnyEngine")


def pick_version(recipe: Recipe, machine: EpisodeMachine) -> int | None:
    """Return the version that must sample an episode's next turn; ``None``: what the engine has."""
    if not recipe.sampling.staleness or machine.split == "eval":
        return None
    return compute_version(recipe, machine.index, machine.turn)


def compute_version(recipe: Recipe, index: int, turn: int) -> int:
    """Return the version that the virtual clock gives to a turn.

    Args:
        recipe: the experiment.
        index: of the episode's task in the run.
        turn: 0-based number of the turn.
    """
    sampling = recipe.sampling
    newest = index // recipe.batch.episodes
    refreshed = turn // sampling.refresh_turns if sampling.refresh_turns else 0
    return max(0, min(newest, newest - sampling.staleness + refreshed))


def count_kept_versions() -> int:
    """Return how many old versions the engines of this process's run keep; 0 outside a run."""
    path = os.environ.get(RUN_VARIABLE)
    return RunDir(path).recipe.sampling.staleness if path else 0


class VersionedEngines(Generic[AnyEngine]):
    """The engines of one model: of the weights that it has now, and of earlier ones.

    Args:
        model: a torch module, whose weights the trainer replaces.
        make: makes an engine of a module.
        keep: how many versions before the newest can be asked for.

    Attributes:
        live: the engine of ``model`` itself.
        version: of its weights.
    """

    def __init__(
        self, model: Any, make: Callable[[Any], AnyEngine], keep: int = 0, version: int = 0
    ) -> None:
        self.model = model
        self.make = make
        self.keep = keep
        self.live = make(model)
        self.version = version
        self._kept: dict[int, AnyEngine] = {}
        self.name(version)

    def name(self, version: int) -> None:
        """The weights of the model are now ``version``: all of them have come."""
        self.version = version
        if not self.keep:
            return
        self._kept[version] = self.make(self._copy())
        for old in [number for number in self._kept if number < version - self.keep]:
            del self._kept[old]

    def _copy(self) -> Any:
        """Return a copy of the model that computes with its own weights alone.

        Trainers put functions in the place of a model's ``forward`` (TRL for its loss, Accelerate
        for bfloat16), which in a copy would go on computing with the original's weights: a copy has
        its class's own.
        """
        copy = deepcopy(self.model)
        for module in copy.modules():
            vars(module).pop("forward", None)
            if module._forward_hooks or module._forward_pre_hooks:
                raise GemError(
                    f"sampling.staleness: {type(module).__name__} has hooks, which a copy of old "
                    "weights would share. Report it."
                )
        return copy

    def at(self, version: int | None) -> tuple[AnyEngine, int]:
        """Return the engine of a version, and that version.

        Args:
            version: ``None`` is the newest.

        Raises:
            GemError: it is not kept.
        """
        if version is None:
            return self.live, self.version
        engine = self._kept.get(version)
        if engine is None:
            raise GemError(
                f"An engine was asked for the weights after training step {version}, and has those "
                f"of the steps {sorted(self._kept)}: a weight update came too late, or not at all."
            )
        return engine, version


def generate_by_version(
    engines: VersionedEngines[Engine],
    requests: Sequence[EngineRequest],
    versions: Sequence[int | None],
) -> list[Completion]:
    """Sample one completion per request, each with the weights of its version, in their order.

    Raises:
        GemError: a version is not kept.
    """
    places: dict[int | None, list[int]] = {}
    for place, version in enumerate(versions):
        places.setdefault(version, []).append(place)
    found: dict[int, Completion] = {}
    for wanted, group in places.items():
        engine, version = engines.at(wanted)
        for place, completion in zip(
            group, engine.generate([requests[k] for k in group]), strict=True
        ):
            completion.version = version
            found[place] = completion
    return [found[place] for place in range(len(requests))]


async def complete_by_version(
    engines: VersionedEngines[AsyncEngine], request: EngineRequest, wanted: int | None
) -> Completion:
    """Sample one completion with the weights of a version.

    Its version is that at the beginning: an engine that gets weights in the middle goes on with
    them.

    Raises:
        GemError: the version is not kept.
    """
    engine, version = engines.at(wanted)
    completion = await engine.complete(request)
    completion.version = version
    return completion


def name_missing(episodes: Iterable[Episode], version: int) -> None:
    """Give a version to the turns that have none: trainers that hold sampling up for an update."""
    for episode in episodes:
        for turn in episode.turns:
            if turn.version is None:
                turn.version = version


def measure_staleness(recipe: Recipe, step: int, episodes: Iterable[Episode]) -> dict[str, float]:
    """Return ``rollout/staleness`` and its largest value; nothing where a turn has no version.

    Args:
        recipe: the experiment.
        step: number of the training step, from 1.
        episodes: its batch.

    Raises:
        GemError: a turn was sampled by weights that came later, or by others than its recipe says.
    """
    tokens = total = largest = 0
    for episode in episodes:
        for _, number, start, end in episode.spans():
            turn = episode.turns[number]
            if turn.version is None and not recipe.sampling.staleness:
                return {}
            age = step - 1 - _require_version(recipe, step, episode, turn)
            tokens += end - start
            total += age * (end - start)
            largest = max(largest, age)
    mean = total / tokens if tokens else 0.0
    return {"rollout/staleness": mean, "rollout/staleness_max": float(largest)}


def _require_version(recipe: Recipe, step: int, episode: Episode, turn: Turn) -> int:
    wanted = range(step)  # none is newer than the step's own
    if recipe.sampling.staleness:
        exact = compute_version(recipe, episode.index, turn.index)
        wanted = range(exact, exact + 1)
    if turn.version is None or turn.version not in wanted:
        expected = f"{wanted[0]}" if len(wanted) == 1 else f"{wanted[0]} to {wanted[-1]}"
        raise GemError(
            f"Training step {step}: turn {turn.index} of task {episode.index} was sampled by the "
            f"weights after step {turn.version}, not {expected}: the engine got an update too "
            "early or too late. Report it."
        )
    return turn.version
