"""The plain records of vLLM that OpenRLHF reads and writes, and which tokens could be drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gem_core.episodes.data import Support


@dataclass
class SamplingParams:
    """How to sample; fields as in vLLM."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop_token_ids: list[int] = field(default_factory=list)
    skip_special_tokens: bool = True
    logprobs: int | None = None
    seed: int | None = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}.")


@dataclass
class Logprob:
    """Log-probability of one token."""

    logprob: float


@dataclass
class CompletionOutput:
    """One sampled completion; the stop token is among ``token_ids``."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str
    support: Support | None = None
    version: int | None = None


@dataclass
class RequestOutput:
    """The answer to one request."""

    request_id: str
    outputs: list[CompletionOutput]
    extra: Any = None
