"""A policy that asks an OpenAI-compatible endpoint: chat completions, or completions of a text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from gem_core.episodes.data import Completion, FinishReason, StopReason
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.policies.endpoint.http_client import HttpClient, HttpError, Response
from gem_core.policies.endpoint.retries import Pacer, RetryConfig, retry_after
from gem_core.policies.endpoint.tool_calls import as_text
from gem_core.policies.endpoint.usage import Price, Usage
from gem_core.policies.failures import EndpointError, EpisodeOver, ItemError
from gem_core.runs.redaction import redact_text, secrets_in

Api = Literal["chat", "completions"]
_NEVER = {
    401: "the key is missing or wrong; see --api-key-env",
    403: "the key has no access; see --api-key-env",
    404: "there is no such address or model; see --base-url and --model",
    405: "this address takes no completions; see --base-url",
}
"""Statuses with which no request can succeed -> what to do."""
_TOO_LONG = ("context_length_exceeded", "maximum context length", "context window")
"""In an answer 400, these say that the prompt does not fit into the model's context."""
_REPEATED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_SHOWN = 300
"""Characters of an answer in a message."""


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint is asked."""

    base_url: str
    """Address above ``/chat/completions``, such as ``http://127.0.0.1:8000/v1``."""
    model: str
    """Name of the model there."""
    api: Api = "chat"
    """``chat`` sends messages, ``completions`` the prompt of the recipe's template as text."""
    timeout_s: float = 600.0
    """Wall seconds of one request."""
    requests_per_minute: float | None = None
    """Limit of all requests; ``None`` = none but the server's own."""
    retry: RetryConfig = RetryConfig()
    """When requests are repeated."""
    tokens_key: str = "max_tokens"
    """Name of the limit of a completion; some servers need ``max_completion_tokens``."""
    body: dict[str, Any] = {}
    """Further fields of each request; they replace those of this package."""
    send_seeds: bool = False
    """Send the seed of each request, where the server has that field."""
    native_tools: bool = False
    """Send the tools of the environment as ``tools``, and read the answer's ``tool_calls``."""
    item_tokens: int | None = None
    """Tokens that the server may report for one item, prompts included; ``None`` = no limit."""
    system: str | None = None
    """System message of ``chat``."""


class EndpointPolicy:
    """Asks an endpoint; it implements `gem_core.episodes.rollout.Policy`.

    Args:
        config: how it is asked.
        sampling: ``temperature`` and, where they are not off, ``top_p`` and ``top_k``.
        key: the API key; ``None`` = no key is sent.
        stop: texts that end a completion (``completions`` only).
        price: what tokens cost.

    Raises:
        GemError: the address or the key cannot be used.
    """

    def __init__(
        self,
        config: EndpointConfig,
        sampling: dict[str, float],
        *,
        key: str | None = None,
        stop: list[str] | None = None,
        price: Price | None = None,
    ) -> None:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        try:
            self._client = HttpClient(config.base_url, headers)
        except ValueError as error:
            raise GemError(f"The endpoint cannot be used: {error}") from error
        self.config = config
        self._price = price
        self._pacer = Pacer(config.retry, config.requests_per_minute)
        self._path = "/chat/completions" if config.api == "chat" else "/completions"
        self._fixed: dict[str, Any] = {"model": config.model, **sampling}
        if stop and config.api == "completions":
            self._fixed["stop"] = stop
        self._usage: dict[int, Usage] = {}
        self._secrets = (key, *secrets_in(config.body))

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`.

        Raises:
            EndpointError: no request can succeed.
            EpisodeOver: the item's budget of tokens is used up, or the prompt is too long for the
                model; the machine has the episode.
            ItemError: this request did not succeed, and repeating it did not help.
        """
        usage = self._usage.setdefault(request.machine.index, Usage())
        budget = self.config.item_tokens
        used = usage.prompt_tokens + usage.completion_tokens
        if budget is not None and used >= budget:
            message = f"{used} tokens of the item's {budget} were used"
            request.machine.abort(StopReason.TRUNCATED_TOKENS, message, close=False)
            raise EpisodeOver(message)
        try:
            answer = await self._answer(msgspec.json.encode(self._body(request)), usage)
        except _TooLongError as error:
            request.machine.abort(StopReason.CONTEXT_OVERFLOW, str(error), close=False)
            raise EpisodeOver(str(error)) from error
        return self._completion(answer)

    def finish(self, item: int) -> Usage:
        """See `gem_core.evaluation.runner.ItemPolicy`."""
        return self._usage.pop(item, None) or Usage()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    # -- one request -----------------------------------------------------------------------------

    def _body(self, request: Request) -> dict[str, Any]:
        config = self.config
        machine = request.machine
        body = {**self._fixed, config.tokens_key: request.max_tokens}
        if config.api == "chat":
            first = [{"role": "system", "content": config.system}] if config.system else []
            body["messages"] = [*first, *machine.messages]
        else:
            body["prompt"] = machine.prompt_text
        if config.send_seeds:
            body["seed"] = request.seed
        functions = getattr(machine.env, "functions", None) if config.native_tools else None
        if functions:
            body["tools"] = functions
        return {**body, **config.body}

    async def _answer(self, body: bytes, usage: Usage) -> dict[str, Any]:
        """Send a request until it succeeds; return what has the form of a completion."""
        for failures in range(1, self.config.retry.attempts + 1):
            await self._pacer.wait_for_turn()
            usage.requests += 1
            usage.retries += failures > 1
            asked: float | None = None
            try:
                response = await asyncio.wait_for(
                    self._client.post(self._path, body), self.config.timeout_s
                )
                asked = retry_after(response.headers)
                answer = _read(response, partial(_text, response, self._secrets))
                usage.add_answer(answer.get("usage"), self._price)
                return answer
            except asyncio.TimeoutError:
                error = ItemError("timeout", f"no answer within {self.config.timeout_s:g} s")
            except HttpError as failure:
                error = ItemError("connection", str(failure))
            except ItemError as failure:
                if failure.kind == "refused":
                    raise
                error = failure
            if failures < self.config.retry.attempts:
                await self._pacer.pause(failures, asked)
        raise ItemError(error.kind, f"{error} (the last of {failures} attempts)")

    @staticmethod
    def _completion(answer: dict[str, Any]) -> Completion:
        choice = answer["choices"][0]
        if "message" in choice:
            message = choice["message"]
            text = (message.get("content") or "") + as_text(message.get("tool_calls"))
        else:
            text = choice["text"] or ""
        cut = choice.get("finish_reason") == "length"
        reason = FinishReason.LENGTH if cut else FinishReason.STOP
        return Completion([], finish_reason=reason, text=text)


class _TooLongError(Exception):
    """The prompt does not fit into the model's context."""


def _read(response: Response, text: Callable[[], str]) -> dict[str, Any]:
    """Return the answer if it has the form of a completion; raise what its status says."""
    status = response.status
    if status in _NEVER:
        raise EndpointError(f"The endpoint answers {status}: {_NEVER[status]}. {text()}")
    if status == 429:
        raise ItemError("rate_limited", f"429: {text()}")
    if status in _REPEATED or status >= 500:
        raise ItemError("server_error", f"{status}: {text()}")
    if status in (400, 413) and any(sign in text().lower() for sign in _TOO_LONG):
        raise _TooLongError(text())
    if status != 200:
        raise ItemError("refused", f"{status}: {text()}")
    try:
        answer = json.loads(response.body)
        choice = answer["choices"][0]
        said = choice["message"].get("content") if "message" in choice else choice["text"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ItemError("bad_answer", f"this is no completion: {text()}") from None
    if not (said is None or isinstance(said, str)) or not isinstance(answer, dict):
        raise ItemError("bad_answer", f"its text is no text: {text()}")
    return answer


def _text(response: Response, secrets: Sequence[str | None]) -> str:
    """Return the beginning of an answer, without the keys that a server repeats in it."""
    text = response.body[: 4 * _SHOWN].decode("utf-8", "replace")
    text = redact_text(text, *secrets)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN]
