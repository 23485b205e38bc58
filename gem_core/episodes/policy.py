"""What an engine is to the loops that play episodes: a request, and two kinds of policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gem_core.errors import require_methods

if TYPE_CHECKING:
    from gem_core.episodes.data import Completion
    from gem_core.episodes.machine import EpisodeMachine


@dataclass(slots=True)
class Request:
    """A request to an engine: continue ``prompt_ids`` by at most ``max_tokens`` tokens.

    Attributes:
        prompt_ids: the prompt.
        max_tokens: largest number of tokens of the completion.
        machine: identifies the episode (sticky routing, text or message prompts); engines must not
            change it.
        seed: decides what a seeded engine draws, below ``2 ** 63``; ``None`` = as the machine says.
    """

    prompt_ids: list[int]
    max_tokens: int
    machine: EpisodeMachine
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is None and self.machine is not None:
            self.seed = self.machine.request_seed


class Policy(Protocol):
    """An asynchronous generation engine."""

    async def complete(self, request: Request) -> Completion:
        """Sample one completion, the stop token included."""


class BatchPolicy(Protocol):
    """A synchronous generation engine that takes batches."""

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion per request, in the same order."""


def check_policy(where: str, policy: Policy) -> None:
    """Check that a policy is an asynchronous one.

    Raises:
        KindError: it is not.
    """
    hint = "MicroBatcher(policy) makes one of a policy that takes batches."
    require_methods(f"{where}: its policy", policy, ("complete",), hint)


def check_batch_policy(where: str, policy: BatchPolicy) -> None:
    """Check that a policy is one that takes batches.

    Raises:
        KindError: it is not.
    """
    hint = "play_many takes a policy with complete()."
    require_methods(f"{where}: its policy", policy, ("complete_batch",), hint)
