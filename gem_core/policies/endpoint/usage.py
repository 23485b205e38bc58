"""What an evaluation used: requests, tokens, seconds, money."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gem_core.errors import GemError


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model's tokens cost, per million; in one currency for all."""

    input: float
    """Tokens of prompts."""
    output: float
    """Tokens of completions, thinking included."""
    cached_input: float | None = None
    """Tokens of prompts that the server had in its cache; ``None`` = as ``input``."""


class Usage(msgspec.Struct):
    """What requests used. ``prompt_tokens`` includes the cached ones."""

    requests: int = 0
    """Requests that were sent, repetitions included."""
    retries: int = 0
    """How many of them were repetitions."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    """``None`` without a table of prices."""

    def add(self, other: Usage) -> None:
        """Add the counts of another."""
        self.requests += other.requests
        self.retries += other.retries
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.completion_tokens += other.completion_tokens
        self.reasoning_tokens += other.reasoning_tokens
        if other.cost is not None:
            self.cost = (self.cost or 0.0) + other.cost

    def add_answer(self, reported: Any, price: Price | None) -> None:
        """Add the field ``usage`` of an answer; what is missing or no count is taken as 0."""
        usage = reported if isinstance(reported, dict) else {}
        prompt = _count(usage, "prompt_tokens")
        cached = min(prompt, _count(_table(usage, "prompt_tokens_details"), "cached_tokens"))
        completion = _count(usage, "completion_tokens")
        details = _table(usage, "completion_tokens_details")
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.completion_tokens += completion
        self.reasoning_tokens += _count(details, "reasoning_tokens")
        if price is not None:
            cheap = price.input if price.cached_input is None else price.cached_input
            spent = (prompt - cached) * price.input + cached * cheap + completion * price.output
            self.cost = (self.cost or 0.0) + spent / 1e6


def _table(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else 0


def read_price(path: Path, model: str) -> Price:
    """Read the price of a model from a table: ``{"model": {"input": 2.5, "output": 10}}``.

    Raises:
        GemError: the file cannot be read, or has no valid price of the model.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(table[model], Price)
    except (OSError, json.JSONDecodeError, msgspec.ValidationError) as error:
        raise GemError(f"{path} is not a table of prices: {error}") from error
    except (KeyError, TypeError):
        raise GemError(
            f'{path} has no price of {model!r}: add "{model}": {{"input": ..., "output": ...}}, '
            "in money per million tokens."
        ) from None
