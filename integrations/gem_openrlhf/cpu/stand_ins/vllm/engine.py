"""The stand-in engine: gem_core's batched sampler, with weight updates over a TCP store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.evaluation.policy import HFPolicy
from vllm.outputs import CompletionOutput, Logprob, RequestOutput, SamplingParams

GATHER_S = 0.004
"""A batch starts when no request came for so long."""


class AsyncEngineArgs:
    """Keeps the engine's keyword arguments."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs


class AsyncLLMEngine:
    """The surface of vLLM's engine that OpenRLHF calls."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        name = kwargs["model"]
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.max_model_len = kwargs.get("max_model_len")
        self.generator = torch.Generator().manual_seed(kwargs.get("seed", 0))
        self.parameters = dict(self.model.named_parameters())
        self.output_processor = SimpleNamespace(get_num_unfinished_requests=self._unfinished)
        self.batch_sizes: list[int] = []
        self._waiting: list[tuple[list[int], SamplingParams, asyncio.Future[Completion]]] = []
        self._running = 0
        self._server: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._open.set()

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs) -> AsyncLLMEngine:
        """As in vLLM."""
        return cls(args.kwargs)

    async def is_sleeping(self) -> bool:
        """As in vLLM; the stand-in never sleeps."""
        return False

    async def reset_prefix_cache(self) -> None:
        """As in vLLM; there is no prefix cache."""

    async def pause_generation(self, mode: str = "keep") -> None:
        """As in vLLM: requests wait until `resume_generation`."""
        self._open.clear()

    async def resume_generation(self) -> None:
        """As in vLLM."""
        self._open.set()

    async def generate(
        self, prompt: dict[str, Any], params: SamplingParams, request_id: str = ""
    ) -> AsyncIterator[RequestOutput]:
        """Yield the finished answer of one request."""
        prompt_ids = list(prompt["prompt_token_ids"])
        if self.max_model_len and len(prompt_ids) >= self.max_model_len:
            raise ValueError(f"The prompt has {len(prompt_ids)} of {self.max_model_len} tokens.")
        if params.min_tokens:
            raise NotImplementedError("The stand-in has no min_tokens.")
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt_ids, params, future))
        if self._server is None or self._server.done():
            self._server = asyncio.ensure_future(self._serve())
        done = await future
        ids = done.token_ids
        tables = None
        if params.logprobs is not None:
            pairs = zip(ids, done.logprobs or [], strict=True)
            tables = [{token: Logprob(number)} for token, number in pairs]
        text = self.tokenizer.decode(ids, skip_special_tokens=params.skip_special_tokens)
        output = CompletionOutput(text, ids, tables, done.finish_reason.value)
        yield RequestOutput(request_id, [output])

    async def collective_rpc(self, method: str, args: Sequence[Any] = ()) -> list[Any]:
        """Run one of OpenRLHF's worker methods, off the event loop: it waits for its peer."""
        return [await asyncio.to_thread(getattr(self, f"worker_{method}"), *args)]

    def worker_init_process_group(
        self, address: str, port: int, rank: int, world: int, *_: Any
    ) -> None:
        """Join the weight-sync group."""
        from openrlhf.utils.distributed_util import stateless_init_process_group

        self.group = stateless_init_process_group(address, port, rank, world, "cpu")

    def worker_update_weight(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], *_: Any
    ) -> None:
        """Receive one parameter."""
        weight = torch.empty(tuple(shape), dtype=dtype)
        self.group.broadcast(weight, src=0, stream=None)
        with torch.no_grad():
            self.parameters[name].copy_(weight)

    # -- sampling ---------------------------------------------------------------------------------

    def _unfinished(self) -> int:
        return len(self._waiting) + self._running

    async def _serve(self) -> None:
        """Sample batches until nobody waits; each gathers all that arrive close together."""
        while self._waiting:
            count = 0
            while count < len(self._waiting):
                count = len(self._waiting)
                await asyncio.sleep(GATHER_S)
            await self._open.wait()
            batch = self._waiting
            self._waiting = []
            self._running = len(batch)
            self.batch_sizes.append(len(batch))
            try:
                requests = [(prompt_ids, params) for prompt_ids, params, _ in batch]
                completions = await asyncio.to_thread(self._sample, requests)
            except Exception as error:
                for _, _, future in batch:
                    future.set_exception(error)
            else:
                for completion, (_, _, future) in zip(completions, batch, strict=True):
                    if not future.done():  # its request was cancelled
                        future.set_result(completion)
            finally:
                self._running = 0

    def _sample(self, batch: list[tuple[list[int], SamplingParams]]) -> list[Completion]:
        """Sample a batch of prompts, those with equal parameters together."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, (_, params) in enumerate(batch):
            stop_ids = tuple(params.stop_token_ids)
            key = (stop_ids, params.temperature, params.top_p, params.top_k)
            groups.setdefault(key, []).append(number)
        completions: dict[int, Completion] = {}
        for (stop_ids, temperature, top_p, top_k), numbers in groups.items():
            ends = {*stop_ids, self.tokenizer.eos_token_id} - {None}
            policy = HFPolicy(
                self.model, sorted(ends), temperature=temperature, top_p=top_p, top_k=top_k
            )
            policy.generator = self.generator
            requests = []
            for number in numbers:
                prompt_ids, params = batch[number]
                requests.append(Request(prompt_ids, params.max_tokens or 16, None))
            sampled = policy.complete_batch(requests)
            completions.update(zip(numbers, sampled, strict=True))
        return [completions[number] for number in range(len(batch))]
