"""Seeded sampling of tokens: the Gumbel-max trick with noise from a counter-based generator.

The token of a row is a pure function of its logits, its seed and its position in the completion:
it depends neither on the other rows, nor on earlier draws, nor on the order of requests. Equal
weights therefore draw equal tokens in every trainer; logits that differ by rounding draw the same
token unless two candidates tie to within that rounding.

With ``E`` exponentially distributed, ``argmax(log p - log E)`` is Gumbel-max (``-log E`` is
Gumbel distributed); `draw` computes the equal ``argmax(p / E)``, which needs one logarithm less.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gem_core.episodes.data import Support
from gem_core.policies.engine.philox import uniforms, uniforms_on


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution that is sampled from; fields as in vLLM.

    Attributes:
        temperature: divides the logits; 0 = the most likely token.
        top_p: keep the smallest set of tokens whose probability is at least this; 1 = all.
        top_k: keep this many tokens; -1 = all.

    Raises:
        ValueError: such a distribution does not exist.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1

    def __post_init__(self) -> None:
        possible = self.temperature >= 0 and 0 < self.top_p <= 1  # also false for NaN
        if not possible or (self.top_k < 1 and self.top_k != -1):
            raise ValueError(
                f"Impossible sampling: temperature={self.temperature}, top_p={self.top_p}, "
                f"top_k={self.top_k}."
            )


def policy_logprobs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the log-probabilities of the sampling policy, float32, (rows, vocabulary).

    Args:
        logits: (rows, vocabulary).
        sampling: its temperature is positive.
    """
    logits = logits.float() / sampling.temperature
    if sampling.top_k != -1 and sampling.top_k < logits.shape[-1]:
        worst = logits.topk(sampling.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < worst, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
        beyond = ordered.cumsum(-1) - ordered >= sampling.top_p
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
    return logits.log_softmax(-1)


def sample(
    logits: torch.Tensor, sampling: Sampling, seeds: Sequence[int], positions: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row.

    Args:
        logits: (rows, vocabulary).
        sampling: what to sample from.
        seeds: the seed of each row's request.
        positions: the place of each row's token in its completion, from 0.

    Returns:
        Tokens and their log-probabilities under the sampling policy, each (rows,).
    """
    if sampling.temperature == 0:
        return _most_likely(logits)
    return _pick(policy_logprobs(logits, sampling), seeds, positions)


def sample_with_support(
    logits: torch.Tensor, sampling: Sampling, seeds: Sequence[int], positions: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, Support]:
    """Draw one token per row, as `sample`; return also which tokens could have been drawn."""
    if sampling.temperature == 0:
        token, certain = _most_likely(logits)
        return token, certain, [array("i", [one]) for one in token.tolist()]
    logprobs = policy_logprobs(logits, sampling)
    return *_pick(logprobs, seeds, positions), find_support(logits, logprobs)


def find_support(logits: torch.Tensor, logprobs: torch.Tensor) -> Support:
    """Return which tokens could be drawn, one entry per row.

    Args:
        logits: (rows, vocabulary); a token at minus infinity is impossible without any cut.
        logprobs: of the sampling policy, of the same shape.
    """
    kept = (logprobs > -torch.inf).cpu().numpy()
    possible = (logits > -torch.inf).sum(-1).tolist()
    return [
        None if row.sum() == count else array("i", np.flatnonzero(row).tolist())
        for row, count in zip(kept, possible, strict=True)
    ]


def _most_likely(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the most likely tokens and log-probabilities of 0, each (rows,)."""
    token = logits.argmax(-1)
    return token, torch.zeros_like(token, dtype=torch.float32)


def _pick(
    logprobs: torch.Tensor, seeds: Sequence[int], positions: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return drawn tokens and their log-probabilities, each (rows,)."""
    token = draw(logprobs.exp(), seeds, positions)
    return token, logprobs.gather(-1, token[:, None])[:, 0]


def draw(
    probabilities: torch.Tensor, seeds: Sequence[int], positions: Sequence[int]
) -> torch.Tensor:
    """Draw one token per row (rows,) from probabilities (rows, vocabulary)."""
    count = probabilities.shape[-1]
    if probabilities.device.type != "cpu":
        noise = -uniforms_on(probabilities.device, seeds, positions, count).log()
        return (probabilities.double() / noise).argmax(-1)
    exponential = np.negative(np.log(uniforms(seeds, positions, count)))
    race = np.divide(probabilities.numpy(), exponential, out=exponential)
    return torch.from_numpy(race.argmax(-1))
