"""Play without a barrier between turns over a vLLM server: each turn is a request of its own.

TRL's own call gathers the turns of all ranks into one request, which answers when the last of them
has ended, so that all episodes wait for the slowest environment. Where environments can block, each
rank sends each turn by itself instead, through TRL's client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from trl.generation.vllm_client import VLLMClient

CONNECTIONS = 1024
"""Open connections that a client keeps, of as many as it has requests at a time; TRL's keeps 64."""
Convert = Callable[[Request, tuple[list[int], list[float]]], Completion]
"""Makes a completion of a request and of the ids and log-probabilities that answer it."""


def has_server(trainer: Any) -> bool:
    """Return whether a trainer generates by a vLLM server."""
    return bool(trainer.use_vllm and trainer.vllm_mode == "server")


def client_of_rank(generation: Any) -> VLLMClient:
    """Return TRL's client of the server; a new one on the ranks where TRL has none.

    It then keeps `CONNECTIONS`: call this once.

    Args:
        generation: TRL's ``VLLMGeneration``. It has a client on the main process only.
    """
    client: VLLMClient = getattr(generation, "vllm_client", None) or _new_client(generation)
    adapter = client.session.get_adapter(client.base_url)
    larger = type(adapter)(pool_maxsize=CONNECTIONS, max_retries=adapter.max_retries)
    client.session.mount(client.base_url, larger)
    return client


def _new_client(generation: Any) -> VLLMClient:
    from trl.generation import vllm_client

    address = generation.server_base_url
    address = address or f"http://{generation.server_host}:{generation.server_port}"
    patience = generation.server_timeout
    return vllm_client.VLLMClient(base_url=address, connection_timeout=patience)


class ServerPolicy:
    """A policy for `gem_core.episodes.rollout.play_many`; its threads end with the ``with`` block.

    A cancelled call leaves its request on the server, whose answer is then dropped.

    Args:
        trainer: whose server it is; the trainer's weights are sent to it first, where they changed.
            On several ranks all must make their policies together.
        client: see `client_of_rank`.
        convert: makes the completions.
        requests: largest number of requests at a time.
    """

    def __init__(self, trainer: Any, client: VLLMClient, convert: Convert, requests: int) -> None:
        self.generation = trainer.vllm_generation
        self.client = client
        self._convert = convert
        self._threads = ThreadPoolExecutor(requests, thread_name_prefix="gem-trl-server")
        if trainer.state.global_step != trainer._last_loaded_step:  # as TRL before its own call
            self.generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
        trainer.accelerator.wait_for_everyone()  # the main process alone sends the weights

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`.

        Raises:
            Exception: what TRL's client raises where the server fails or refuses a request.
            GemError: the answer cannot be used.
        """
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._threads, self._generate, request)
        return self._convert(request, answer)

    def _generate(self, request: Request) -> tuple[list[int], list[float]]:
        """Return the ids and their log-probabilities; sampled as in TRL's own call."""
        engine = self.generation
        output: dict[str, Any] = self.client.generate(
            prompts=[request.prompt_ids],
            n=1,
            repetition_penalty=engine.repetition_penalty,
            temperature=engine.temperature,
            top_p=engine.top_p,
            top_k=engine.top_k,
            min_p=engine.min_p or 0.0,
            max_tokens=request.max_tokens,
            logprobs=engine.logprobs,
            structured_outputs_regex=engine.structured_outputs_regex,
            generation_kwargs={**engine.generation_kwargs, "max_tokens": request.max_tokens},
        )
        (ids,), (rows,) = output["completion_ids"], output["logprobs"]
        return ids, [row[0] for row in rows]
