"""RL2's own configuration, as hydra composes it from RL2's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import RL2

from gem_adapters import hydra


def compose_native(overrides: Sequence[str]) -> Any:
    """The configuration of ``RL2.trainer.ppo`` with ``overrides`` in hydra's grammar."""
    return hydra.compose_native(Path(RL2.__path__[0], "trainer", "config"), "ppo", overrides)


@cache
def native_keys() -> Mapping[str, Any]:
    """Every key of the installed RL2's configuration, dotted -> its default, references as text."""
    return hydra.leaves(compose_native([]))
