"""gem_core's CPU engine in place of verl's rollout engines, for CPU runs.

One Ray actor per replica answers the requests that verl's server client sends, samples those of
concurrent episodes together, and takes the trainer's weights at each synchronisation.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from gem_adapters.engine_state import EngineState
from gem_adapters.support import SUPPORT
from gem_adapters.versions import (
    VERSION,
    VersionedEngines,
    complete_by_version,
    count_kept_versions,
)
from gem_core.errors import GemError
from gem_core.policies.engine.asynchronous import AsyncEngine
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.sampling import Sampling

GATHER_S = 0.01
"""Requests come one by one through Ray: a short wait costs less than small batches."""
_HONOURED = {
    "logprobs", "max_tokens", "seed", "stop_token_ids", "temperature", "top_k", "top_p",
    "repetition_penalty", SUPPORT,
}  # fmt: skip


def engine_request(prompt_ids: list[int], sampling_params: dict[str, Any]) -> EngineRequest:
    """Return the request that verl's sampling parameters describe.

    Raises:
        GemError: they have one that the engine does not know.
    """
    params = dict(sampling_params)
    penalty = params.get("repetition_penalty", 1.0)
    unknown = sorted(set(params) - _HONOURED)
    if unknown or penalty != 1.0:
        raise GemError(
            f"The CPU engine has no sampling parameters {unknown or ['repetition_penalty']}: leave "
            "them out of [trainer.verl], or train on a GPU."
        )
    sampling = Sampling(
        float(params.get("temperature", 1.0)),
        float(params.get("top_p", 1.0)),
        int(params.get("top_k", -1)),
    )
    return EngineRequest(
        list(prompt_ids),
        int(params["max_tokens"]),
        frozenset(params.get("stop_token_ids") or ()),
        sampling,
        params.get("seed"),
        bool(params.get("logprobs")),
        bool(params.get(SUPPORT)),
    )


class HFServer:
    """The actor: the methods are those verl 0.9 calls on a rollout server.

    Args:
        model_path: the model before its first synchronisation, Hugging Face format.
        sleeps: it gives its memory back when it is told to (verl's ``free_cache_engine``).
    """

    def __init__(self, model_path: str, sleeps: bool = True) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.engines = VersionedEngines(
            self.model,
            lambda model: AsyncEngine(Engine(model), gather_s=GATHER_S),
            count_kept_versions(),
        )
        self.sleeps = sleeps
        self.state = EngineState()

    async def generate(
        self, request_id: str, prompt_ids: Any, sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        """Sample one completion."""
        from verl.workers.rollout.replica import TokenOutput

        self.state.ask()
        params = dict(sampling_params)
        wanted = params.pop(VERSION, None)
        request = engine_request(prompt_ids, params)
        completion = await complete_by_version(self.engines, request, wanted)
        return TokenOutput(
            token_ids=completion.token_ids,
            log_probs=completion.logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": completion.version, SUPPORT: completion.support},
        )

    async def load_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        """Take the trainer's weights. Raises RuntimeError for a name that does not fit."""
        self.state.load()
        await self.engines.live.update(self._load, weights)
        if version is not None:
            self.engines.name(version)

    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        result = self.model.load_state_dict(weights, strict=False)
        if set(result.missing_keys) - tied or result.unexpected_keys:
            raise RuntimeError(f"Weights do not fit: {result}.")

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Take the memory of ``tags``, by default all."""
        if self.sleeps:
            self.state.wake_up(tags)

    async def sleep(self) -> None:
        """Give weights and cache up, as verl's vLLM servers do where no adapter is trained."""
        if self.sleeps:
            self.state.sleep(level=2)

    async def abort_all_requests(self, reject_request: bool = False) -> None: ...

    async def resume_generation(self) -> None: ...

    async def clear_kv_cache(self) -> None:
        """Discard what was computed of prompts."""
        self.state.reset_cache()

    async def release_kv_cache(self) -> None:
        """Give the cache up, and keep the weights."""
        if self.sleeps:
            self.state.release_cache()

    async def resume_kv_cache(self) -> None:
        """Take the memory of the cache."""
        await self.wake_up(["kv_cache"])

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...
