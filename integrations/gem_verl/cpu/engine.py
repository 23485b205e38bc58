"""Hugging Face generation as a verl rollout replica, for CPU runs.

One Ray actor per replica answers the requests that verl's server client sends, gathers those of
concurrent episodes into one batch, and takes the trainer's weights at each synchronisation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from gem_core.episodes.data import Completion, FinishReason
from gem_core.episodes.rollout import MicroBatcher, Request
from gem_verl.cpu.harness import ENGINE


def register() -> None:
    """Make the engine known to verl in this process; its classes are imported when asked for."""
    from verl.workers.rollout import base, replica

    def load() -> Any:
        from gem_verl.cpu.replica import HFReplica

        return HFReplica

    replica.RolloutReplicaRegistry.register(ENGINE, load)
    # verl has no function to register a worker-side rollout class.
    base._ROLLOUT_REGISTRY[(ENGINE, "async")] = "gem_verl.cpu.replica.HFWeights"


class HFPolicy:
    """Batched sampling with a key-value cache under one set of sampling parameters."""

    def __init__(self, model: Any, sampling: dict[str, Any], generator: torch.Generator) -> None:
        self.model, self.generator = model, generator
        self.temperature = float(sampling.get("temperature", 1.0))
        self.top_k, self.top_p = int(sampling.get("top_k", -1)), float(sampling.get("top_p", 1.0))
        self.stop_ids = set(sampling.get("stop_token_ids") or ())

    @torch.no_grad()
    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample until every row met a stop id or its cap."""
        rows = [request.prompt_ids for request in requests]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        attention = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        cache, found = None, [([], []) for _ in rows]
        active = torch.ones(len(rows), dtype=torch.bool)
        for _ in range(max(request.max_tokens for request in requests)):
            output = self.model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            cache = output.past_key_values
            tokens, logprobs = self._sample(output.logits[:, -1].float())
            for row, request in enumerate(requests):
                if active[row]:
                    found[row][0].append(int(tokens[row]))
                    found[row][1].append(float(logprobs[row]))
                    stop = int(tokens[row]) in self.stop_ids
                    active[row] = not stop and len(found[row][0]) < request.max_tokens
            if not active.any():
                break
            ids, positions = tokens[:, None], positions[:, -1:] + 1
            attention = torch.cat([attention, torch.ones(len(rows), 1, dtype=torch.long)], dim=1)
        return [Completion(ids, logprobs, self._reason(ids)) for ids, logprobs in found]

    def _reason(self, ids: list[int]) -> FinishReason:
        return FinishReason.STOP if ids[-1] in self.stop_ids else FinishReason.LENGTH

    def _sample(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and their log-probabilities under the distribution sampled from."""
        if self.temperature == 0:
            logprobs = torch.log_softmax(logits, -1)
            tokens = logits.argmax(-1)
        else:
            logprobs = torch.log_softmax(self._truncated(logits / self.temperature), -1)
            tokens = torch.multinomial(logprobs.exp(), 1, generator=self.generator)[:, 0]
        return tokens, logprobs.gather(1, tokens[:, None])[:, 0]

    def _truncated(self, logits: torch.Tensor) -> torch.Tensor:
        if self.top_k > 0:
            floor = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < floor, -torch.inf)
        if self.top_p < 1:
            ordered, order = logits.sort(descending=True)
            mass = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            drop = torch.zeros_like(mass, dtype=torch.bool).scatter(1, order, mass >= self.top_p)
            logits = logits.masked_fill(drop, -torch.inf)
        return logits


class HFServer:
    """The actor: the methods are those verl 0.9 calls on a rollout server."""

    def __init__(self, model_path: str, seed: int) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.generator = torch.Generator().manual_seed(seed)
        self.version: int | None = None
        self.batchers: dict[str, MicroBatcher] = {}

    async def generate(
        self, request_id: str, prompt_ids: Any, sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        """Sample one completion."""
        from verl.workers.rollout.replica import TokenOutput

        sampling = dict(sampling_params)
        cap = int(sampling.pop("max_tokens"))
        key = repr(sorted(sampling.items()))
        if key not in self.batchers:
            policy = HFPolicy(self.model, sampling, self.generator)
            # Requests come one by one through Ray: a short wait costs less than small batches.
            self.batchers[key] = MicroBatcher(policy, max_wait_s=0.03)
        request = Request(list(prompt_ids), cap, None)  # type: ignore[arg-type]
        done = await self.batchers[key].complete(request)
        return TokenOutput(
            token_ids=done.token_ids,
            log_probs=done.logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    async def load_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        """Take the trainer's weights; a name that does not fit raises."""
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        result = self.model.load_state_dict(weights, strict=False)
        if set(result.missing_keys) - tied or result.unexpected_keys:
            raise RuntimeError(f"Weights do not fit: {result}.")
        self.version = version

    async def wake_up(self) -> None: ...

    async def sleep(self) -> None: ...

    async def abort_all_requests(self, reject_request: bool = False) -> None: ...

    async def resume_generation(self) -> None: ...

    async def clear_kv_cache(self) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...
