"""An environment for gem-core with its players, a tool and an estimator.

coins          what the others know of coins
environment    the environment
players        scripted players of it
tool           a tool that an agent may call, in this environment or another
estimator      an estimator of advantages
"""

from __future__ import annotations

import gem_core
from gem_core.env.registration.parameters import Whole


def register() -> None:
    """Register the environments. gem-core calls it, by the entry point in pyproject.toml."""
    place = "my_envs.environment:Change"
    of_clients = {"most": Whole(1, 99)}
    gem_core.register("my:Change-v0", place, client_parameters=of_clients)
    gem_core.register("my:Change-v0-easy", place, client_parameters=of_clients, most=20)
