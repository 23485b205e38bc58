"""The cases of the checks that have several, and what these checks need: a replay, a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from gem_conform.candidate import Candidate
from gem_conform.failures import NotApplicable
from gem_core.advantages import list_estimators
from gem_core.advantages.registry import estimator_needs
from gem_core.errors import unknown
from gem_parity.cases import RUNS, STRONG, RunCase
from gem_parity.replays import GROUP, OWN, load_replay
from gem_parity.traits import Traits

AGGREGATIONS: dict[str, tuple[str, ...]] = {
    "token": (),
    "sequence": (),
    "constant": ("algorithm.loss_constant=40",),
}
Case = TypeVar("Case")


def gradient_cases() -> dict[str, tuple[str, ...]]:
    """Return the cases: every estimator without a critic, and every aggregation of the loss."""
    from gem_parity.reference_advantages import ESTIMATORS

    known = [name for name in list_estimators() if name in ESTIMATORS]
    cases: dict[str, tuple[str, ...]] = {
        f"{name} / token": (f"algorithm.estimator={name}",)
        for name in known
        if not estimator_needs(name).values
    }
    for name, also in AGGREGATIONS.items():
        keys = ("algorithm.estimator=rebn", f"algorithm.loss_aggregation={name}", *also)
        cases[f"rebn / {name}"] = keys
    return cases


def require_cases(candidate: Candidate) -> None:
    """Refuse chosen cases that no check has.

    Raises:
        UnknownNameError: there is no such case.
    """
    from gem_parity.faults import INPUT_FAULTS

    known = [*gradient_cases(), *recorded_cases(replay_of(candidate)), *INPUT_FAULTS]
    for name in candidate.cases:
        if name not in known:
            raise unknown("case", name, known, f"There are: {', '.join(known)}.")


def choose_cases(candidate: Candidate, cases: Mapping[str, Case]) -> dict[str, Case]:
    """Return the cases of a check that are to be checked.

    Raises:
        NotApplicable: none is.
    """
    names = [name for name in cases if not candidate.cases or name in candidate.cases]
    if not names:
        raise NotApplicable("none of the chosen cases is one of this check")
    return {name: cases[name] for name in names}


def recorded_cases(module: ModuleType) -> dict[str, RunCase]:
    """Return the recorded runs, with one for each further mode of training of a replay."""
    modes: Mapping[str, tuple[str, ...]] = getattr(module, "MODES", {})
    more = {f"rebn, {name}": replace(RUNS["rebn"], also=keys) for name, keys in modes.items()}
    return {**RUNS, **STRONG, **more}


def replay_of(candidate: Candidate) -> ModuleType:
    """Return the replay module of the trainer.

    Raises:
        NotApplicable: there is none.
    """
    try:
        return load_replay(candidate.name)
    except ModuleNotFoundError as error:
        if error.name not in (OWN, f"{OWN}.{candidate.name}"):
            raise
        raise NotApplicable(
            f"there is no replay of {candidate.name}: name its module in the entry points "
            f"{GROUP!r} (docs/conformance.md)"
        ) from None


def traits_of(candidate: Candidate) -> Traits:
    """Return what the trainer's update does in its own way; nothing where it has no replay."""
    try:
        traits: Traits = replay_of(candidate).TRAITS
    except NotApplicable:
        return Traits()
    return traits


@cache
def small_model(folder: Path) -> str:
    """Return the directory of the random model that frozen episodes are trained on."""
    from gem_parity.small_model import write_model

    return write_model(folder / "small-model")
