"""Recipe -> OpenRLHF's dotted command-line flags.

`gem_openrlhf.key_table` says which flag comes from which recipe key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_adapters.native_keys import refuse_keys, refuse_native
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe
from gem_openrlhf.checks import check_native, check_values
from gem_openrlhf.command_line import known_flags
from gem_openrlhf.key_table import TABLE

APPLIED = TABLE.applied
"""Applied by the adapter itself: experience maker, executor, dataset rows, CPU harness."""
REFUSED = TABLE.refused
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = TABLE.translated
"""Keys that `flags` turns into native ones."""
NATIVE_OWNED = TABLE.owned
"""Native flag -> what decides it; refused in ``[trainer.openrlhf]``."""
NATIVE_DEFAULTS = TABLE.defaults
"""Native flags that the adapter sets, and that ``[trainer.openrlhf]`` may set otherwise."""


def translate(recipe: Recipe) -> list[str]:
    """Translate to arguments of ``openrlhf.cli.train_ppo_ray``, without the paths of a run.

    Raises:
        RecipeError: a key cannot be honoured, or a native flag is unknown or not free.
        MissingDependencyError: there are native flags, and no OpenRLHF to ask which ones it has.
    """
    return render(flags(recipe))


def flags(recipe: Recipe) -> dict[str, Any]:
    """Return OpenRLHF's flags by dotted name; raises as `translate`."""
    refuse_keys(recipe, "openrlhf", REFUSED)
    native = native_flags(recipe)
    check_values(recipe)
    refuse_truncated_sampling(recipe, "openrlhf")
    check_native(recipe, native)
    return {**TABLE.settings(recipe), **native}


def native_flags(recipe: Recipe) -> dict[str, Any]:
    """Return ``[trainer.openrlhf]`` by dotted name.

    Raises:
        RecipeError: OpenRLHF has no such flag, or something else decides it.
        MissingDependencyError: there are flags, and OpenRLHF is not installed.
    """
    refuse_native(recipe, "openrlhf", NATIVE_OWNED)
    native = flatten(recipe.trainer.get("openrlhf", {}))
    if not native:
        return {}
    known = known_flags()
    for name in native:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RecipeError(f"trainer.openrlhf.{name}: OpenRLHF has no such flag.{hint}")
    return native


def render(native: Mapping[str, Any]) -> list[str]:
    """Write flags as arguments: True is a bare flag, False and None are left out.

    Raises:
        RecipeError: a value would be read as a flag.
    """
    arguments: list[str] = []
    for name, value in native.items():
        if value is None or value is False:
            continue
        arguments.append(f"--{name}")
        if value is True:
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        texts = [str(item) for item in items]
        for text in texts:
            if text.startswith("--"):
                raise RecipeError(f"trainer.openrlhf.{name}: {text!r} would be read as a flag.")
        arguments += texts
    return arguments
