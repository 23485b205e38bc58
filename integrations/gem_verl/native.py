"""verl's own configuration, as hydra composes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem_adapters import hydra
from gem_core.errors import MissingDependencyError
from gem_verl import TRAINER


def compose_native(overrides: Sequence[str]) -> Any:
    """Compose the configuration of ``verl.trainer.main_ppo``, without importing verl.

    Args:
        overrides: in hydra's grammar.

    Raises:
        MissingDependencyError: verl is not installed.
    """
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(f"verl is not installed: {TRAINER.install}.")
    folder = Path(spec.submodule_search_locations[0], "trainer", "config")
    return hydra.compose_native(folder, "ppo_trainer", overrides)


@cache
def native_keys() -> Mapping[str, Any]:
    """Return every dotted key of verl's configuration -> its default, references as text."""
    return hydra.leaves(compose_native([]))
