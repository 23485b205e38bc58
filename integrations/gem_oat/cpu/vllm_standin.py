"""A stand-in for the part of vLLM 0.8.4 that Oat 0.2.4 uses: transformers on a CPU."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
import transformers

__version__ = "0.8.4"


@dataclass
class SamplingParams:
    """The fields that Oat and the adapter set; names and meanings are vLLM's."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 16
    logprobs: int | None = None
    seed: int | None = None
    stop_token_ids: Sequence[int] = ()


class LoRARequest:
    """Imported by Oat, never made here."""


class Logprob(NamedTuple):
    """Log-probability of one token."""

    logprob: float


class CompletionOutput(NamedTuple):
    """One completion; ``token_ids`` includes the stop token, as vLLM's does."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: list[dict[int, Logprob]]
    finish_reason: str


class RequestOutput(NamedTuple):
    """The completions of one prompt."""

    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


class LLM:
    """One model and the methods of ``vllm.LLM`` that Oat calls."""

    def __init__(self, model: str, dtype: str, worker_extension_cls: str, **_: Any) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            model, torch_dtype=getattr(torch, dtype)
        )
        self.model: Any = loaded.eval()
        module, name = worker_extension_cls.rsplit(".", 1)
        self.worker = _worker(getattr(import_module(module), name), self.model)
        self.llm_engine = self

    def get_tokenizer(self) -> Any:
        """The tokenizer."""
        return self.tokenizer

    def collective_rpc(self, name: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """Call a method of Oat's worker extension; process groups cannot be serialised."""
        result = getattr(self.worker, name)(*args)
        return [None if isinstance(result, torch.distributed.ProcessGroup) else result]

    def reset_prefix_cache(self) -> None:
        """There is none."""

    def sleep(self, level: int = 1) -> None:
        """Nothing to free."""

    def wake_up(self) -> None:
        """Nothing to load."""

    @torch.no_grad()
    def generate(
        self,
        prompt_token_ids: list[list[int]],
        sampling_params: list[SamplingParams],
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Sample one completion per prompt; each row draws from its own seed, as in vLLM."""
        params = sampling_params[0]
        generators = [random.Random(p.seed) for p in sampling_params]
        caps = torch.tensor([p.max_tokens for p in sampling_params])
        stop_ids = torch.tensor(list(params.stop_token_ids))
        ids, mask = _left_padded(prompt_token_ids)
        running = torch.ones(len(caps), dtype=torch.bool)
        cache = None
        tokens: list[torch.Tensor] = []
        logprobs: list[torch.Tensor] = []
        while running.any():
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            token, logprob = _sample(out.logits[:, -1].float(), params, generators)
            tokens.append(token)
            logprobs.append(logprob)
            running &= ~torch.isin(token, stop_ids) & (caps > len(tokens))
            ids = token[:, None]
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
        rows = zip(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist(), strict=True)
        return [
            RequestOutput(prompt, [self._completion(row, p)])
            for prompt, row, p in zip(prompt_token_ids, rows, sampling_params, strict=True)
        ]

    def _completion(
        self, row: tuple[list[int], list[float]], params: SamplingParams
    ) -> CompletionOutput:
        sampled, sampled_logprobs = row
        ids = sampled[: params.max_tokens]
        stops = [place for place, token in enumerate(ids) if token in params.stop_token_ids]
        if stops:
            ids = ids[: stops[0] + 1]
        pairs = zip(ids, sampled_logprobs, strict=False)  # the engine went on for other rows
        return CompletionOutput(
            text=self.tokenizer.decode(ids, skip_special_tokens=True),
            token_ids=tuple(ids),
            logprobs=[{token: Logprob(logprob)} for token, logprob in pairs],
            finish_reason="stop" if stops else "length",
        )


def _left_padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(map(len, prompts))
    ids = torch.tensor([[0] * (length - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask


def _sample(
    logits: torch.Tensor, params: SamplingParams, generators: list[random.Random]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and log-probabilities (rows,) by inverting the distribution function."""
    if params.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros(len(token))
    logits = logits / params.temperature
    ids: Any = None
    if params.top_k > 0:
        logits = transformers.TopKLogitsWarper(params.top_k)(ids, logits)
    if params.top_p < 1:
        logits = transformers.TopPLogitsWarper(params.top_p)(ids, logits)
    logp = logits.log_softmax(-1)
    cumulative = logp.double().exp().cumsum(-1)
    drawn = torch.tensor([[g.random()] for g in generators], dtype=torch.float64)
    token = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True)
    return token[:, 0], logp.gather(-1, token)[:, 0]


def _worker(extension: type, language_model: Any) -> Any:
    """A vLLM worker with Oat's extension: only the loading of weights is ours."""

    class Worker(extension):
        class model_config:
            dtype = language_model.dtype

        class model_runner:
            class model:
                @staticmethod
                def load_weights(weights: list[tuple[str, torch.Tensor]]) -> None:
                    parameters = dict(language_model.named_parameters())
                    for name, weight in weights:
                        parameters[name].data.copy_(weight)

    return Worker()
