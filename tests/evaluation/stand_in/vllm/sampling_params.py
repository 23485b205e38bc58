"""The fields that an evaluation sets; any other is an error."""

from __future__ import annotations

from dataclasses import dataclass


class RequestOutputKind:
    """vLLM's, in which only the final output is asked for."""

    FINAL_ONLY = "final"


@dataclass(kw_only=True)
class SamplingParams:
    """Names and meanings are vLLM's."""

    temperature: float
    top_p: float
    top_k: int
    stop_token_ids: list
    ignore_eos: bool
    detokenize: bool
    max_tokens: int
    seed: int
    output_kind: str
