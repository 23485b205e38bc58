"""Checks of packages: versions, what they declare, whether they can be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gem_core.errors import MissingDependencyError
from gem_core.runs.install import Stack, normal
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.eval_engine import missing_engine as missing_engine_of_evaluations
from gem_preflight.readiness.facts import Probe, Problem, Torch

FLASH = "flash-attn"


def wrong_versions(stack: Stack, probe: Probe, torch: Torch | None) -> list[Problem]:
    """Hold what the trainer and its engine declare against what is installed.

    Each distribution of ``stack.watched`` is reported once, with all that declare it, in the order
    in which they are to be installed. A torch for CPUs, or none, is left to `hardware.torch_build`.
    """
    found: dict[str, list[str]] = {}
    for owner, name, wanted in sorted(_declared(stack, probe), key=lambda d: _place(stack, d[1])):
        if name == "torch" and (torch is None or torch.cuda is None):
            continue
        installed = probe.version(name)
        if installed is None:
            found.setdefault(f"{name} is not installed", []).append(f"{owner} needs {wanted}")
        elif not _matches(wanted, installed):
            found.setdefault(f"{name} is {installed}", []).append(f"{owner} needs {wanted}")
    return [
        Problem(f"{what}, but {' and '.join(sorted(set(needs)))}", stack.line_for(what.split()[0]))
        for what, needs in found.items()
    ]


def _place(stack: Stack, distribution: str) -> int:
    line = stack.line_for(distribution)
    return stack.lines.index(line) if line in stack.lines else len(stack.lines)


def missing_engine(stack: Stack, probe: Probe) -> list[Problem]:
    """Report an engine that is not there and that nothing installed declares."""
    declared = {name for _, name, _ in _declared(stack, probe)}
    if stack.engine in declared or probe.version(stack.engine):
        return []
    return [Problem(f"{stack.engine} is not installed", stack.line_for(stack.engine))]


def missing_eval_engine(recipe: Recipe, trainer: str, probe: Probe) -> list[Problem]:
    """Report an engine that the recipe's evaluations want and that is not there."""
    missing = missing_engine_of_evaluations(recipe, trainer, probe.has_module)
    return [Problem(*missing)] if missing else []


def other_build(stack: Stack, probe: Probe, torch: Torch | None) -> list[Problem]:
    """Report a flash-attn that was built for another torch."""
    built, installed = probe.built_for(FLASH), probe.version(FLASH)
    if not stack.flash_attn or torch is None or built is None:
        return []
    if torch.version.split("+")[0].split(".")[:2] == built.split("."):
        return []
    return [
        Problem(
            f"flash-attn {installed} was built for torch {built}, and torch is {torch.version}",
            rebuild_line(stack),
        )
    ]


def rebuild_line(stack: Stack) -> str:
    """Return the line that builds flash-attn again, for the torch that is there."""
    line = stack.line_for(FLASH)
    return f"{line} --no-deps --force-reinstall --no-cache-dir"


def failed_imports(
    modules: Sequence[str], probe: Probe, line_for: Callable[[str], str]
) -> list[Problem]:
    """Import what a run imports.

    Args:
        modules: ``module`` or ``module:name``, in an order in which causes come before effects.
        probe: imports them.
        line_for: gives the line that fixes an import.
    """
    return [
        Problem(f"`import {path.partition(':')[0]}` fails with {_short(why)}", line_for(path))
        for path, why in probe.import_errors(modules).items()
    ]


def import_line(path: str, stack: Stack) -> str:
    """Return the line that fixes the import of ``path`` on a machine with GPUs."""
    top = path.partition(":")[0].partition(".")[0]
    return rebuild_line(stack) if normal(top) == FLASH else stack.line_for(top)


def _short(text: str) -> str:
    """Return the first lines of a message, at most 300 letters."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:300]}..."


def _declared(stack: Stack, probe: Probe) -> Iterator[tuple[str, str, str]]:
    """Yield ``(owner, distribution, specifier)`` of what is watched and declared."""
    try:
        from packaging.requirements import Requirement
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "Comparing versions needs packaging: pip install packaging"
        ) from error
    watched = {normal(name): name for name in stack.watched}
    for owner, extras in stack.holds.items():
        for text in probe.requires(owner):
            wanted = Requirement(text)
            name = watched.get(normal(wanted.name))
            marker = wanted.marker
            active = ("", *extras)
            if name and (marker is None or any(marker.evaluate({"extra": e}) for e in active)):
                yield f"{owner} {probe.version(owner)}", name, str(wanted.specifier) or "any"


def _matches(specifier: str, installed: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return specifier == "any" or SpecifierSet(specifier).contains(installed, prereleases=True)
