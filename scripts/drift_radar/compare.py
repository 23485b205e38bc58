"""What moved between two releases of a trainer, of what its adapter uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import griffe

from drift_radar.release import Parameter, Release
from drift_radar.seams import BARE, Seam
from drift_radar.settings import settings

REPLACED = ("override", "patch", "exact")
"""Uses in which the adapter's code stands for the trainer's, or must fit it in each parameter."""
FEW = 3
"""Definitions up to which an attribute's name alone says whose it is."""
Moved = tuple[str, str]


class Finding(NamedTuple):
    """One thing that moved.

    Attributes:
        level: ``gone``, ``changed``, or a ``note``: what does not break the adapter by itself.
        path: what moved.
        text: how.
        places: where the adapter uses it.
    """

    level: str
    path: str
    text: str
    places: tuple[str, ...]

    def line(self) -> str:
        """As it is printed."""
        return f"{self.level}: {self.path}: {self.text} ({', '.join(self.places)})"


class Report(NamedTuple):
    """A comparison.

    Attributes:
        findings: what moved.
        followed: seams that were compared.
        lost: seams whose path the older release does not have, so that nothing can be said.
    """

    findings: list[Finding]
    followed: int
    lost: list[Seam]

    @property
    def drift(self) -> list[Finding]:
        """What is gone or changed."""
        return [finding for finding in self.findings if finding.level != "note"]


def compare(trainer: str, seams: Iterable[Seam], old: Release, new: Release) -> Report:
    """Hold each seam, as it is in ``old``, against ``new``."""
    findings: list[Finding] = []
    lost: list[Seam] = []
    followed = 0
    keys = settings(trainer, old), settings(trainer, new)
    for seam in seams:
        if seam.how in BARE:
            moved = _bare(seam, old, new, *keys)
        else:
            moved = _with_path(seam, old, new)
            if moved is None and _is_lost(seam, old):
                lost.append(seam)
        if moved is not None:
            followed += 1
            findings += [Finding(level, seam.path, text, seam.places) for level, text in moved]
    return Report(_merged(findings), followed, lost)


def follows(path: str, release: Release) -> bool:
    """Return whether a release has a path, or a bare name that says what it is.

    Args:
        path: of a seam that is no setting.
        release: of the trainer.
    """
    if "." in path:
        return release.find(path) is not None
    return 0 < len(release.defined.get(path, ())) <= FEW or ("_" in path and path in release.texts)


def _merged(findings: list[Finding]) -> list[Finding]:
    """Return each thing that moved once, with all places, notes last."""
    places: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for level, path, text, at in findings:
        places[level, path, text].update(at)
    merged = [Finding(*moved, tuple(sorted(at))) for moved, at in places.items()]
    return sorted(merged, key=lambda finding: (finding.level == "note", finding.path))


def _is_lost(seam: Seam, old: Release) -> bool:
    """Whether a path should be there: not one of a class that another package completes."""
    owner = old.find(seam.path.rpartition(".")[0])
    if seam.how in ("override", "patch"):
        return owner is None  # otherwise it is the adapter's own name
    return owner is None or isinstance(owner, griffe.Module)


def _with_path(seam: Seam, old: Release, new: Release) -> list[Moved] | None:
    """Return what moved; None where the older release does not have it."""
    before = old.find(seam.path)
    if before is None:
        return None
    after = new.find(seam.path)
    if after is None:
        return [("gone", f"not in {new.version}")]
    if before.kind is not after.kind:
        return [("changed", f"was a {before.kind.value}, is a {after.kind.value}")]
    taken = old.parameters(before), new.parameters(after)
    moved = [*_parameters(seam, *taken)] if taken[0] is not None and taken[1] is not None else []
    if seam.how in REPLACED and old.body(before) != new.body(after):
        moved.append(("note", "its code is not the same"))
    return moved


def _parameters(
    seam: Seam, before: list[Parameter] | None, after: list[Parameter] | None
) -> Iterator[Moved]:
    """Yield how what a function or class takes has changed for a use of it."""
    was = {p.name: p for p in before or ()}
    now = {p.name: p for p in after or ()}
    is_class = any(p.kind == "field" for p in was.values())
    if is_class and seam.how != "call":
        return
    gone = was.keys() - now.keys()
    if seam.how == "call" and seam.keywords and is_class:
        gone &= seam.keywords
    if gone:
        yield "changed", f"no longer takes {', '.join(sorted(gone))}"
    new = [p for name, p in now.items() if name not in was]
    needed = [p.name for p in new if p.default is None and "variadic" not in p.kind]
    optional = [p.name for p in new if p.name not in needed]
    if needed:
        yield "changed", f"needs {', '.join(needed)}"
    if optional:
        level = "changed" if seam.how in REPLACED else "note"
        yield level, f"also takes {', '.join(optional)}"
    common = [name for name in was if name in now]
    if common != [name for name in now if name in was] and not is_class:
        yield "changed", f"takes its parameters in another order: {', '.join(now)}"
    for name in common:
        if was[name].kind != now[name].kind:
            yield "changed", f"takes {name} as {now[name].kind}, took it as {was[name].kind}"
        if was[name].default != now[name].default:
            level = "changed" if now[name].default is None else "note"
            yield (
                level,
                f"{name}: default {_short(was[name].default)} -> {_short(now[name].default)}",
            )


def _bare(
    seam: Seam,
    old: Release,
    new: Release,
    keys_before: dict[str, str | None],
    keys_after: dict[str, str | None],
) -> list[Moved] | None:
    """Return what moved of a name without an owner; None where it says nothing."""
    if seam.how == "data":
        known = "_" in seam.path and seam.path in old.texts
        gone = [("gone", f"no text of {new.version} is this key")]
        return None if not known else [] if seam.path in new.texts else gone
    if seam.how == "name":
        return _by_name(seam, old, new)
    if seam.path not in keys_before:
        return None
    if seam.path not in keys_after:
        return [("gone", f"no setting of {new.version}")]
    defaults = keys_before[seam.path], keys_after[seam.path]
    same = defaults[0] == defaults[1]
    level = "changed" if seam.how == "own setting" else "note"
    return [] if same else [(level, f"default {_short(defaults[0])} -> {_short(defaults[1])}")]


def _short(default: str | None) -> str:
    """Return a default in a few words; that of a field without its metadata."""
    text = (default or "none").split(", metadata=")[0]
    return text if len(text) <= 60 else f"{text[:57]}..."


def _by_name(seam: Seam, old: Release, new: Release) -> list[Moved] | None:
    before = old.defined.get(seam.path, [])
    if not 0 < len(before) <= FEW or seam.path.startswith("__"):
        return None
    after = new.defined.get(seam.path, [])
    if not after:
        return [("gone", f"nothing of this name is defined in {new.version}")]
    if len(before) == 1 and before[0] is not None and before[0] not in after:
        now = " or ".join(str(parameters) for parameters in after)
        return [("changed", f"took {before[0]}, takes {now}")]
    return []
