"""Hugging Face generation in place of verl's rollout engines, for CPU runs.

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

BATCHING_SECONDS = 0.03
"""Requests come one by one through Ray: a short wait costs less than small batches."""


class HFPolicy:
    """Batched sampling with a key-value cache under one set of sampling parameters.

    Args:
        model: a causal language model.
        sampling: verl's sampling parameters.
        generator: the source of all randomness.
    """

    def __init__(self, model: Any, sampling: dict[str, Any], generator: torch.Generator) -> None:
        self.model = model
        self.generator = generator
        self.temperature = float(sampling.get("temperature", 1.0))
        self.top_k = int(sampling.get("top_k", -1))
        self.top_p = float(sampling.get("top_p", 1.0))
        self.stop_ids = set(sampling.get("stop_token_ids") or ())

    @torch.no_grad()
    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample until every row reached a stop id or its cap."""
        rows = [request.prompt_ids for request in requests]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        attention = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        cache = None
        completions = [Completion([], []) for _ in rows]
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
                    token = int(tokens[row])
                    _append(completions[row], token, float(logprobs[row]))
                    length = len(completions[row].token_ids)
                    active[row] = token not in self.stop_ids and length < request.max_tokens
            if not active.any():
                break
            ids = tokens[:, None]
            positions = positions[:, -1:] + 1
            attention = torch.cat([attention, torch.ones(len(rows), 1, dtype=torch.long)], dim=1)
        for completion in completions:
            stopped = completion.token_ids[-1] in self.stop_ids
            completion.finish_reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        return completions

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
        """Set the logits of tokens that top-k and top-p leave out to minus infinity."""
        if self.top_k > 0:
            lowest = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < lowest, -torch.inf)
        if self.top_p < 1:
            ordered, order = logits.sort(descending=True)
            mass = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            drop = torch.zeros_like(mass, dtype=torch.bool).scatter(1, order, mass >= self.top_p)
            logits = logits.masked_fill(drop, -torch.inf)
        return logits


def _append(completion: Completion, token: int, logprob: float) -> None:
    completion.token_ids.append(token)
    assert completion.logprobs is not None  # made with a list
    completion.logprobs.append(logprob)


class HFServer:
    """The actor: the methods are those verl 0.9 calls on a rollout server.

    Args:
        model_path: the model before its first synchronisation, Hugging Face format.
        seed: decides all sampling of this server.
    """

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
        max_tokens = int(sampling.pop("max_tokens"))
        request = Request(list(prompt_ids), max_tokens, None)  # type: ignore[arg-type]
        completion = await self._batcher(sampling).complete(request)
        return TokenOutput(
            token_ids=completion.token_ids,
            log_probs=completion.logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    def _batcher(self, sampling: dict[str, Any]) -> MicroBatcher:
        """Return the batcher of requests with these sampling parameters."""
        key = repr(sorted(sampling.items()))
        if key not in self.batchers:
            policy = HFPolicy(self.model, sampling, self.generator)
            self.batchers[key] = MicroBatcher(policy, max_wait_s=BATCHING_SECONDS)
        return self.batchers[key]

    async def load_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        """Take the trainer's weights. Raises RuntimeError for a name that does not fit."""
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
