"""Convert what an engine returned for one turn to a `Completion`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from gem_core.episodes.data import Completion, FinishReason
from gem_core.errors import GemError

_ABORTED = ("abort", "aborted", "error")  # vLLM's "error": the request failed inside the engine
_NAMED = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "repetition": FinishReason.LENGTH,  # vLLM cut the action off because it repeats itself
}


def to_completion(
    token_ids: Iterable[int],
    logprobs: Iterable[float] | None,
    finish_reason: str | None,
    stop_ids: Collection[int],
    max_tokens: int,
    *,
    reports_logprobs: bool = True,
) -> Completion:
    """Convert an engine's answer.

    Args:
        token_ids: sampled ids, the stop token included.
        logprobs: log-probability of each id, ``None`` where the engine reports none.
        finish_reason: the engine's own reason. After ``"abort"`` and ``"error"`` nothing of the
            answer is used; ``"repetition"`` is an action that was cut off, as ``"length"``. Any
            other is replaced by the reason that follows from the tokens.
        stop_ids: ids that end a turn.
        max_tokens: number of tokens that the request allowed.
        reports_logprobs: whether the engine can report log-probabilities.

    Raises:
        GemError: the engine named no reason, and the tokens end neither with a stop token nor at
            the cap; or it reported no log-probabilities, or not as many as tokens.
    """
    if finish_reason in _ABORTED:
        return Completion([], finish_reason=FinishReason.ABORT)
    ids = [int(token) for token in token_ids]
    numbers = None if logprobs is None else [float(number) for number in logprobs]
    if ids and reports_logprobs and len(numbers or ()) != len(ids):
        raise GemError(
            f"The engine reported {len(numbers or ())} log-probabilities of {len(ids)} sampled "
            "tokens; every one is recorded. Leave out the native keys that turn them off, or "
            "install a tested version of the engine (`gem-core doctor`)."
        )
    reason = _NAMED.get(finish_reason or "")
    return Completion(ids, numbers, reason or _reason(ids, stop_ids, max_tokens))


def vllm_completion(
    output: Any, stop_ids: Collection[int], max_tokens: int, *, reports_logprobs: bool = True
) -> Completion:
    """Convert a ``vllm.CompletionOutput``, whose ``logprobs`` is one dictionary per token.

    The other arguments and the errors are those of `to_completion`.
    """
    ids = list(output.token_ids)
    logprobs = None
    if output.logprobs and output.finish_reason not in _ABORTED:
        pairs = zip(ids, output.logprobs, strict=True)
        logprobs = [table[token_id].logprob for token_id, table in pairs]
    return to_completion(
        ids, logprobs, output.finish_reason, stop_ids, max_tokens, reports_logprobs=reports_logprobs
    )


def _reason(ids: list[int], stop_ids: Collection[int], max_tokens: int) -> FinishReason:
    if ids and ids[-1] in stop_ids:
        return FinishReason.STOP
    if len(ids) >= max_tokens:
        return FinishReason.LENGTH
    raise GemError(
        f"The engine returned {len(ids)} of {max_tokens} tokens and no stop token: it strips them, "
        "or the model's context is full (set limits.max_context_tokens)."
    )
