"""A policy with a local Hugging Face model, by the engine of `gem_core.policies.engine`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, Literal

from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError, require_kind, require_methods
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.sampling import Sampling


class HFPolicy:
    """Samples completions from a causal language model of transformers.

    It implements `gem_core.episodes.rollout.BatchPolicy`. A completion depends only on the weights,
    the prompt and the request's seed; on a CPU not even its last bit depends on the other requests.
    The global generators are neither read nor written. The model may be trained between two calls.

    Args:
        model: the causal language model, on the device on which it runs.
        stop_ids: ids that end a completion.
        temperature: sampling temperature; 0 = the most likely token.
        top_p: keep the smallest set of tokens whose probability is at least this.
        top_k: keep this many tokens; -1 = all.
        seed: draws other completions from the same requests; 0 = those of a training run, whose
            requests carry the run's seed already.
        max_batch: sequences per forward pass.
        support: ``drawn`` = completions say which tokens could have been drawn.
        staleness: of a recipe; it must be 0, as the model is sampled from as it is.
        refresh_turns: of a recipe; it does nothing without ``staleness``.

    Raises:
        GemError: old weights are asked for.
    """

    def __init__(
        self,
        model: Any,
        stop_ids: Sequence[int],
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        seed: int = 0,
        max_batch: int = 512,
        support: Literal["all", "drawn"] = "all",
        staleness: int = 0,
        refresh_turns: int = 0,
    ) -> None:
        if staleness:
            raise GemError("HFPolicy(staleness): it keeps no old weights; leave it 0.")
        require_kind("HFPolicy(stop_ids)", stop_ids, Collection, "The ids of tokens.")
        for stop_id in stop_ids:
            require_methods("Each of HFPolicy(stop_ids)", stop_id, ("__index__",), "A token's id.")
        self.sampling = Sampling(temperature, top_p, top_k)
        self.stop_ids = frozenset(stop_ids)
        self.seed = seed
        self.support = support
        self.engine = Engine(model, max_batch=max_batch)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `BatchPolicy`; the log-probabilities are those of the sampling policy."""
        return self.engine.generate([self._engine_request(request) for request in requests])

    def _engine_request(self, request: Request) -> EngineRequest:
        return EngineRequest(
            request.prompt_ids,
            request.max_tokens,
            self.stop_ids,
            self.sampling,
            self._mix_seed(request.seed),
            support=self.support == "drawn",
        )

    def _mix_seed(self, seed: int | None) -> int | None:
        """Return a request's seed, mixed with that of the policy."""
        if self.seed == 0 or seed is None:
            return seed
        digest = blake2b(f"{self.seed}/{seed}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1
