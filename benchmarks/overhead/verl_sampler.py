"""verl's own sampler, which polls for finished rows as often as the adapter's.

Its polling interval of two seconds is longer than a whole step of the tiny model, and verl's
configuration has no key for it.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class Sampler(ReplayBuffer):  # type: ignore[misc]
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, poll_interval=0.1)
