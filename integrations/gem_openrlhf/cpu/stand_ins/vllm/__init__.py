"""Stand-in for vLLM on a CPU: what OpenRLHF 0.11.2 touches of it, on gem_core's engine.

Requests that run at the same time are sampled in one batch; weights are really updated.
"""

from __future__ import annotations

from vllm.engine import AsyncEngineArgs, AsyncLLMEngine
from vllm.outputs import CompletionOutput, Logprob, RequestOutput, SamplingParams

__version__ = "0.29.0"
__all__ = [
    "AsyncEngineArgs",
    "AsyncLLMEngine",
    "CompletionOutput",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
]
