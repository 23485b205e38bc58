"""A policy with a local Hugging Face model: batched, seeded sampling with a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gem_core.episodes.data import Completion, FinishReason
from gem_core.episodes.rollout import Request


class HFPolicy:
    """Samples completions from a causal language model of transformers.

    It implements `gem_core.episodes.rollout.BatchPolicy`. Sampling uses a generator of its own: the
    same seed and the same sequence of requests give the same completions, and the global
    generators are neither read nor written.

    Args:
        model: the causal language model, on the device on which it runs.
        stop_ids: ids that end a completion.
        temperature: sampling temperature; 0 = the most likely token.
        top_p: keep the smallest set of tokens whose probability is at least this.
        top_k: keep this many tokens; -1 = all.
        seed: seed of the generator.
        max_batch: sequences per forward pass.
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
    ) -> None:
        if temperature < 0 or not 0 < top_p <= 1 or (top_k < 1 and top_k != -1):
            raise ValueError(f"Impossible sampling: {temperature=}, {top_p=}, {top_k=}.")
        self.model = model.eval()
        self.stop_ids = torch.tensor(sorted(stop_ids), device=model.device)
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self.max_batch = max_batch
        self.generator = torch.Generator(device=model.device).manual_seed(seed)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `BatchPolicy`; the log-probabilities are those of the sampling policy."""
        completions: list[Completion] = []
        with torch.no_grad():
            for first in range(0, len(requests), self.max_batch):
                completions += self._complete(requests[first : first + self.max_batch])
        return completions

    def _complete(self, requests: Sequence[Request]) -> list[Completion]:
        inputs, mask = self._left_padded([r.prompt_ids for r in requests])
        caps = torch.tensor([r.max_tokens for r in requests], device=mask.device)
        running = torch.ones_like(caps, dtype=torch.bool)
        cache: Any = None
        sampled: list[torch.Tensor] = []
        logprobs: list[torch.Tensor] = []
        while bool(running.any()):
            out = self.model(
                input_ids=inputs,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, -inputs.shape[1] :],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            token, logprob = self._sample(out.logits[:, -1].float())
            sampled.append(token)
            logprobs.append(logprob)
            running = running & ~torch.isin(token, self.stop_ids) & (caps > len(sampled))
            inputs = token[:, None]
            mask = torch.cat([mask, torch.ones_like(inputs)], dim=1)
        return self._completions(
            torch.stack(sampled, 1).tolist(), torch.stack(logprobs, 1).tolist(), caps.tolist()
        )

    def _left_padded(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and attention mask, both (sequences, longest prompt); padding is masked."""
        length = max(map(len, prompts))
        ids = torch.tensor([[0] * (length - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
        return ids.to(self.model.device), mask.to(self.model.device)

    def _sample(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample tokens and their log-probabilities (sequences,) from logits (sequences, vocab)."""
        if self.temperature == 0:
            token = logits.argmax(-1)
            return token, torch.zeros_like(token, dtype=logits.dtype)
        logits = logits / self.temperature
        if self.top_k != -1 and self.top_k < logits.shape[-1]:
            worst = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < worst, -torch.inf)
        if self.top_p < 1:
            ordered, order = logits.softmax(-1).sort(dim=-1, descending=True)
            beyond = ordered.cumsum(-1) - ordered >= self.top_p
            logits = logits.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)
        logprobs = logits.log_softmax(-1)
        token = torch.multinomial(logprobs.exp(), 1, generator=self.generator)
        return token[:, 0], logprobs.gather(-1, token)[:, 0]

    def _completions(
        self, tokens: list[list[int]], logprobs: list[list[float]], caps: list[int]
    ) -> list[Completion]:
        stops = set(self.stop_ids.tolist())
        completions = []
        for ids, logps, cap in zip(tokens, logprobs, caps, strict=True):
            stopped_at = [n for n, token_id in enumerate(ids[:cap], 1) if token_id in stops]
            reason = FinishReason.STOP if stopped_at else FinishReason.LENGTH
            end = stopped_at[0] if stopped_at else cap
            completions.append(Completion(ids[:end], logps[:end], reason))
        return completions
