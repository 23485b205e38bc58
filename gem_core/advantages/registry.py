"""The registry of estimators: built-in, registered, or provided by an installed package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gem_core.advantages._arrays import FloatArray
from gem_core.advantages.batch import TurnBatch
from gem_core.advantages.stats import Reduce, identity
from gem_core.errors import AdvantageError, RegistrationError, no_exit, unknown

ENTRY_POINT_GROUP = "gem_core.advantages"
Estimator = Callable[..., FloatArray]
"""``f(batch, *, gamma, lam, reduce, **options) -> float64 [N]``."""
F = TypeVar("F", bound=Estimator)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_STANDARD = ("gamma", "lam", "reduce")
_NEEDS = "gem_core_needs"
"""Attribute of an estimator's function that holds what it declared."""
_registered: dict[str, Estimator] = {}
_resolved: dict[str, Estimator] = {}  # what get_estimator returned for each name


class EstimatorNeeds(NamedTuple):
    """What an estimator reads beside the rewards.

    Attributes:
        values: ``TurnBatch.values`` and ``bootstrap``: the trainer trains a critic.
        groups: ``TurnBatch.group``: several episodes share an initial state.
        ignores: which of ``gamma`` and ``lam`` it does not read: setting them is refused.
    """

    values: bool = False
    groups: bool = False
    ignores: frozenset[str] = frozenset()


def declare_needs(
    *, needs_values: bool = False, needs_groups: bool = False, ignores: Iterable[str] = ()
) -> Callable[[F], F]:
    """Declare what the decorated estimator needs, without giving it a name in this process.

    It is for estimators that are found by an entry point or as ``"module:function"``. Trainers
    train a critic for an estimator that needs values; a recipe without groups is refused for one
    that needs groups, and one that sets ``gamma`` or ``lam`` for one that ignores it. What wraps
    the estimator (`functools.wraps`) needs the same.

    Raises:
        RegistrationError: attributes of the estimator cannot be set.
    """

    def declare(estimator: F) -> F:
        before = _declared(estimator)
        needs = EstimatorNeeds(
            before.values or needs_values,
            before.groups or needs_groups,
            before.ignores | frozenset(ignores),
        )
        if needs == before:
            return estimator
        try:
            setattr(estimator, _NEEDS, needs)
        except AttributeError:
            raise RegistrationError(
                f"{_origin(estimator)} cannot declare what it needs: make it a function."
            ) from None
        return estimator

    return declare


def register_estimator(
    name: str,
    *,
    needs_values: bool = False,
    needs_groups: bool = False,
    ignores: Iterable[str] = (),
) -> Callable[[F], F]:
    """Register the decorated function as estimator ``name``, in this process.

    It must accept ``gamma``, ``lam`` and ``reduce`` as keywords; its other keywords are its
    options. `compute_advantages` gives it a batch without masked turns. Trainers run estimators in
    worker processes: to have the name in all of them, install an entry point of the group
    ``gem_core.advantages``, or name the estimator ``"module:function"``.

    Args:
        name: of the estimator in recipes.
        needs_values: it reads ``TurnBatch.values``, see `declare_needs`.
        needs_groups: it reads ``TurnBatch.group``.
        ignores: which of ``gamma`` and ``lam`` it does not read.

    Raises:
        RegistrationError: the name is malformed or taken, or the signature does not fit.
    """

    def register(estimator: F) -> F:
        if not _NAME.fullmatch(name):
            raise RegistrationError(
                f"Estimator name {name!r} is malformed: use a letter, then letters, digits, '_', "
                "'.' or '-'."
            )
        known = _registered.get(name) or _resolved.get(name)
        if known is not None and known is not estimator:
            raise RegistrationError(
                f"The estimator name {name!r} is taken by {_origin(known)}: choose another name."
            )
        _check_signature(name, estimator)
        declare_needs(needs_values=needs_values, needs_groups=needs_groups, ignores=ignores)(
            estimator
        )
        _registered[name] = estimator
        return estimator

    return register


def estimator_needs(name: str) -> EstimatorNeeds:
    """Return what estimator ``name`` declared; raises as `get_estimator`."""
    return _declared(get_estimator(name))


def get_estimator(name: str) -> Estimator:
    """Return the estimator called ``name``; ``"module:function"`` is imported from that module.

    Raises:
        UnknownNameError: nothing has this name.
        RegistrationError: an installed package provides an estimator under a name that is taken,
            or one that cannot be imported.
    """
    if name in _resolved:
        return _resolved[name]
    if ":" in name:
        if not _PLACE.fullmatch(name):
            raise RegistrationError(f"Estimator {name!r}: write it as 'module:function'.")
        estimator = _load(name, EntryPoint(name, name, ENTRY_POINT_GROUP))
    else:
        estimator = _find(name)
    _resolved[name] = estimator
    return estimator


def list_estimators() -> list[str]:
    """Return the sorted names of all estimators; those of packages are not imported."""
    installed = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return sorted({*_registered, *installed})


def estimator_options(name: str) -> dict[str, Any]:
    """Return the options of an estimator with their defaults (`Parameter.empty` if required)."""
    return {p.name: p.default for p in _options(get_estimator(name)).values()}


def compute_advantages(
    name: str,
    batch: TurnBatch,
    *,
    gamma: float,
    lam: float = 0.95,
    reduce: Reduce = identity,
    **options: Any,
) -> FloatArray:
    """Compute the advantage of each turn. Trainers call this function and no estimator directly.

    Args:
        name: name of the estimator, see `list_estimators`.
        batch: the turns of this rank.
        gamma: discount per turn, in [0, 1].
        lam: lambda of GAE, in [0, 1].
        reduce: the elementwise sum over ranks; the identity for a single process. All ranks must
            call this function with the same arguments, also a rank without turns.
        **options: options of the estimator, see `estimator_options`.

    Returns:
        float64 [N], finite; 0 on masked turns.

    Raises:
        UnknownNameError: there is no such estimator, or it has no such option.
        AdvantageError: ``batch`` is no `TurnBatch`, ``gamma`` or ``lam`` is out of range, an option
            is missing, the batch lacks what the estimator needs, or it returned anything but one
            finite number per turn.
    """
    if not isinstance(batch, TurnBatch):
        raise AdvantageError(
            f"compute_advantages takes a TurnBatch, not a {type(batch).__name__}: write "
            "TurnBatch(rewards=..., episode=...), the reward of each turn and its episode's number."
        )
    estimator = get_estimator(name)
    check_options(name, options)
    require_unit("gamma", gamma)
    require_unit("lam", lam)
    valid = batch.valid()
    check_needs(name, _declared(estimator), valid)
    result = np.asarray(
        estimator(valid, gamma=gamma, lam=lam, reduce=reduce, **options), dtype=np.float64
    )
    _check_result(name, result, valid)
    if batch.mask is None:
        return result
    out = np.zeros(len(batch))
    out[batch.mask] = result
    return out


def _find(name: str) -> Estimator:
    """Look ``name`` up among registered and installed estimators; it must be unambiguous."""
    offers = {point.value: point for point in entry_points(group=ENTRY_POINT_GROUP, name=name)}
    registered = _registered.get(name)
    places = sorted({*offers, *([_origin(registered)] if registered else [])})
    if not places:
        known = list_estimators()
        raise unknown("estimator", name, known, f"Known: {', '.join(known)}.")
    if len(places) > 1:
        raise RegistrationError(
            f"Estimator {name!r} is provided by {' and '.join(places)}: rename one, or uninstall "
            "its package."
        )
    return registered or _load(name, offers[places[0]])


def _load(name: str, point: EntryPoint) -> Estimator:
    """Import the estimator of an entry point; an error names the module and the function."""
    try:
        with no_exit(f"Estimator {name!r} cannot be loaded from {point.value!r}"):
            estimator = point.load()
    except (ImportError, AttributeError) as error:
        raise RegistrationError(
            f"Estimator {name!r} cannot be loaded from {point.value!r}: {error}"
        ) from error
    _check_signature(name, estimator)
    loaded: Estimator = estimator
    return loaded


def _origin(estimator: Estimator) -> str:
    name = getattr(estimator, "__qualname__", repr(estimator))  # a partial has no name
    return f"{estimator.__module__}:{name}"


def _options(estimator: Estimator) -> Mapping[str, Parameter]:
    """Return the keyword parameters of an estimator other than gamma, lam and reduce."""
    parameters = list(signature(estimator).parameters.values())[1:]
    return {p.name: p for p in parameters if p.name not in _STANDARD and p.kind != p.VAR_KEYWORD}


def _takes_any_option(estimator: Estimator) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in signature(estimator).parameters.values())


def _check_signature(name: str, estimator: object) -> None:
    if not callable(estimator):
        kind = type(estimator).__name__
        raise RegistrationError(f"Estimator {name!r} is a {kind}, not a function.")
    parameters = signature(estimator).parameters
    missing = [p for p in _STANDARD if p not in parameters]
    if missing and not _takes_any_option(estimator):
        raise RegistrationError(
            f"Estimator {name!r} does not accept {', '.join(missing)}: declare it as "
            "f(batch, *, gamma, lam, reduce, ...options) and ignore what it does not need."
        )


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Check the names of the options of estimator ``name``.

    Raises:
        UnknownNameError: there is no such estimator, or it has no such option.
        AdvantageError: an option is missing.
    """
    estimator = get_estimator(name)
    known = _options(estimator)
    for option in options:
        if option not in known and not _takes_any_option(estimator):
            listing = ", ".join(known) if known else "none"
            raise unknown(f"option of estimator {name!r}:", option, known, f"Options: {listing}.")
    missing = [p.name for p in known.values() if p.default is p.empty and p.name not in options]
    if missing:
        raise AdvantageError(f"Estimator {name!r} needs the option {', '.join(missing)}.")


def _declared(estimator: object) -> EstimatorNeeds:
    """Return what an estimator declared; by default it needs nothing."""
    needs = getattr(estimator, _NEEDS, EstimatorNeeds())
    assert isinstance(needs, EstimatorNeeds), f"{_NEEDS} is an attribute of gem_core's own"
    return needs


def require_unit(name: str, number: float) -> float:
    """Return a number if it is in [0, 1]; else raise AdvantageError."""
    if not 0.0 <= number <= 1.0:
        raise AdvantageError(f"{name} must be in [0, 1], got {number!r}.")
    return float(number)


def check_needs(name: str, needs: EstimatorNeeds, batch: TurnBatch) -> None:
    """Raise AdvantageError where ``batch`` has turns, and lacks what the estimator needs."""
    if needs.values and batch.values is None and len(batch):
        raise AdvantageError(
            f"{name} needs TurnBatch.values: V(s_t) at the last prompt token of each turn. "
            "Without a critic, use 'rebn' or 'reinforce'."
        )
    if needs.groups and batch.group is None and len(batch):
        raise AdvantageError(
            f"{name} needs TurnBatch.group: without it, each episode is alone in its group. Give "
            "the initial state of each episode, several episodes per state."
        )


def _check_result(name: str, result: FloatArray, batch: TurnBatch) -> None:
    if result.shape != (len(batch),):
        raise AdvantageError(
            f"Estimator {name!r} returned shape {result.shape} for {len(batch)} turns: it must "
            "return one advantage per turn."
        )
    bad = np.flatnonzero(~np.isfinite(result))
    if bad.size:
        raise AdvantageError(
            f"Estimator {name!r} returned {result[bad[0]]} for turn {bad[0]} ({bad.size} of "
            f"{result.size} not finite). Check the size of the rewards, and its divisions."
        )
