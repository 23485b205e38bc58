"""The CPU engine: continuous batching over one causal language model of transformers.

    engine = Engine(model)
    completions = engine.generate(requests)

Requests join and leave between two steps; a step samples one token of every running request. Keys
and values stay after a request, so that the next turn of its episode computes its new tokens alone;
they are dropped when the weights change. A completion is a function of the weights, the prompt and
the request's seed: it does not depend on what else runs (`gem_core.policies.engine.attention`,
`gem_core.policies.engine.sampling`). It also runs on a GPU, for evaluation, where rounding may
differ.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gem_core.episodes.data import Completion, FinishReason, Support
from gem_core.errors import require_methods
from gem_core.policies.engine.attention import KEYS_MULTIPLE, EngineMode
from gem_core.policies.engine.first_calls import make_first_calls
from gem_core.policies.engine.kv_store import ROWS_MULTIPLE, KVStore, round_up
from gem_core.policies.engine.sampling import Sampling, sample, sample_with_support
from gem_core.policies.engine.slots import SequenceSlot, SlotTable

CACHE_BYTES = 2**31
"""Keys and values of ended requests are kept up to this size."""
_WIDTH_MULTIPLE = 8
_TOKENS_AT_ONCE = 16_384
_SPARE_COLUMNS = 64
_WEIGHTS_READ = 64
_UNSEEDED = 2**63
"""Keys of requests without a seed: no seed is that large."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What to sample.

    Attributes:
        prompt_ids: the prompt, at least one token.
        max_tokens: largest number of tokens; ``None`` = up to the context limit.
        stop_ids: ids that end the completion, which includes them.
        sampling: the distribution.
        seed: decides the draws, below ``2 ** 63``; ``None`` = the engine counts.
        logprobs: whether to report log-probabilities.
        support: whether to report which tokens could have been drawn.
    """

    prompt_ids: list[int]
    max_tokens: int | None
    stop_ids: frozenset[int]
    sampling: Sampling = Sampling()  # noqa: RUF009 - immutable
    seed: int | None = None
    logprobs: bool = True
    support: bool = False


@dataclass(slots=True)
class _Running:
    """A request in its slot."""

    number: int
    request: EngineRequest
    seed: int
    limit: int
    slot: SequenceSlot
    logprobs: list[float] = field(default_factory=list)
    support: Support = field(default_factory=list)

    @property
    def sampled(self) -> int:
        return len(self.slot.tokens) - len(self.request.prompt_ids)

    @property
    def missing(self) -> int:
        """Number of tokens that are not in the store."""
        return len(self.slot.tokens) - self.slot.filled

    def completion(self) -> Completion:
        ids = self.slot.tokens[len(self.request.prompt_ids) :]
        stopped = ids[-1] in self.request.stop_ids
        reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        logprobs = self.logprobs if self.request.logprobs else None
        return Completion(
            ids, logprobs, reason, support=self.support if self.request.support else None
        )


class Engine:
    """One model and its requests; not thread-safe.

    Args:
        model: a causal language model of transformers. It may be trained between two calls: its
            mode and its attention are as before after each.
        max_model_len: the context limit; ``None`` = the model's own.
        max_batch: requests that run at the same time.
        cache_bytes: keys and values of ended requests are kept up to this size.

    Attributes:
        batches: number of steps by how many tokens they sampled.
        computed: number of tokens that went through the model, without what fills up a batch.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_model_len: int | None = None,
        max_batch: int = 512,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        hint = "It is a loaded causal language model of transformers."
        require_methods("Engine(model)", model, ("config", "forward"), hint)
        make_first_calls()
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.model = model
        self._store_argument = _store_argument(model)
        self.max_model_len: int = max_model_len or positions or sys.maxsize
        self.max_batch = max_batch
        self.cache_bytes = cache_bytes
        self.batches: Counter[int] = Counter()
        self.computed = 0
        self._store = KVStore()
        self._table = SlotTable()
        self._waiting: deque[tuple[int, EngineRequest, int]] = deque()
        self._running: list[_Running] = []
        self._mode = EngineMode(model)
        self._count = 0
        self._weights: torch.Tensor | None = None

    @property
    def unfinished(self) -> int:
        """Number of requests that run or wait."""
        return len(self._waiting) + len(self._running)

    def add(self, request: EngineRequest) -> int:
        """Add a request; return its number.

        Raises:
            ValueError: the prompt is empty or leaves no space in the context, as in vLLM.
        """
        length = len(request.prompt_ids)
        if not 0 < length < self.max_model_len:
            raise ValueError(
                f"The prompt has {length} tokens; the engine takes 1 to {self.max_model_len - 1} "
                "(its context limit less one): set limits.max_context_tokens."
            )
        if request.max_tokens is not None and request.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {request.max_tokens}.")
        self._count += 1
        seed = _UNSEEDED + self._count if request.seed is None else request.seed
        self._waiting.append((self._count, request, seed))
        return self._count

    def abort(self, number: int) -> bool:
        """End a request without a completion; return whether it had not ended before."""
        for position, (waiting, _, _) in enumerate(self._waiting):
            if waiting == number:
                del self._waiting[position]
                return True
        for item in self._running:
            if item.number == number:
                self._running.remove(item)
                self._table.release(item.slot)
                return True
        return False

    def drop_caches(self) -> None:
        """Forget keys and values: the weights changed. Running requests are read again."""
        self._table.drop()

    def generate(self, requests: Iterable[EngineRequest]) -> list[Completion]:
        """Sample one completion per request, in their order."""
        order = [self.add(request) for request in requests]
        completions: dict[int, Completion] = {}
        self._begin()
        with torch.no_grad(), self._mode:
            while len(completions) < len(order):
                self._admit()
                completions.update(self._step())
        return [completions[number] for number in order]

    def advance(self, interrupted: Callable[[], bool] = lambda: False) -> dict[int, Completion]:
        """Step until a request ends, none is left, or ``interrupted``; return what ended."""
        self._begin()
        ended: dict[int, Completion] = {}
        with torch.no_grad(), self._mode:
            while self.unfinished and not ended:
                self._admit()
                ended = self._step()
                if interrupted():
                    break
        return ended

    # -- requests and slots -----------------------------------------------------------------------

    def _begin(self) -> None:
        """Drop the caches if nothing runs and the weights are not those of the last call."""
        if self._running:
            return
        parts = [p.detach().reshape(-1) for p in self.model.parameters()]
        sums = [part[:: 1 + len(part) // _WEIGHTS_READ].double().sum() for part in parts]
        weights = torch.stack(sums)
        if self._weights is None or not torch.equal(weights, self._weights):
            self.drop_caches()
        self._weights = weights

    def _admit(self) -> None:
        """Give waiting requests a slot, with what an earlier sequence computed of their prompt."""
        copies: dict[tuple[int, int], list[int]] = {}
        while self._waiting and len(self._running) < self.max_batch:
            number, request, seed = self._waiting[0]
            prompt = list(request.prompt_ids)
            source, shared = self._table.longest(prompt)
            slot = source
            if source is None or source.busy or source.filled != shared:
                slot = self._table.free(self._slot_limit())
            if slot is None:
                break
            self._waiting.popleft()
            if any(slot.index == origin for origin, _ in copies):
                self._copy(copies)  # before its tokens are replaced
            if source is not None and slot is not source:
                copies.setdefault((source.index, shared), []).append(slot.index)
            self._table.take(slot, prompt, shared)
            limit = min(request.max_tokens or self.max_model_len, self.max_model_len - len(prompt))
            self._running.append(_Running(number, request, seed, limit, slot))

        self._copy(copies)

    def _copy(self, copies: dict[tuple[int, int], list[int]]) -> None:
        """Copy leading tokens: from a slot, so many, to other slots."""
        self._reserve(0)
        for (source, tokens), targets in copies.items():
            self._store.copy(source, targets, tokens)
        copies.clear()

    def _slot_limit(self) -> int:
        each = self._store.bytes_per_slot
        return max(self.max_batch, self.cache_bytes // each if each else 0)

    def _reserve(self, tokens: int) -> None:
        """Make space in the store for all slots, and for sequences of ``tokens`` tokens."""
        store, slots = self._store, len(self._table)
        if slots > store.slots and 2 * store.slots * store.bytes_per_slot < self.cache_bytes:
            slots = max(slots, 2 * store.slots)
        enough = tokens < store.columns
        store.reserve(slots, 0 if enough else tokens + max(_SPARE_COLUMNS, tokens // 2))

    # -- a step -----------------------------------------------------------------------------------

    def _step(self) -> dict[int, Completion]:
        """Sample one token of each running request; return those that ended."""
        running = self._running
        if not running:
            return {}
        self._reserve(max(len(item.slot.tokens) for item in running) + 1)
        logits = self._next_logits()
        tokens = self._sample(logits)
        self.batches[len(running)] += 1
        ended: dict[int, Completion] = {}
        for item, token in zip(running, tokens, strict=True):
            item.slot.tokens.append(token)
            if token in item.request.stop_ids or item.sampled >= item.limit:
                ended[item.number] = item.completion()
                self._table.release(item.slot)
        if ended:
            self._running = [item for item in running if item.number not in ended]
        return ended

    def _sample(self, logits: torch.Tensor) -> list[int]:
        """Draw a token per running request, those with equal parameters together.

        Their log-probabilities and supports are noted in the requests.
        """
        groups: dict[tuple[Sampling, bool], list[int]] = {}
        for place, item in enumerate(self._running):
            key = item.request.sampling, item.request.support
            groups.setdefault(key, []).append(place)
        tokens = [0] * len(self._running)
        for (sampling, with_support), places in groups.items():
            items = [self._running[place] for place in places]
            drawn, numbers = self._draw(
                logits if len(groups) == 1 else logits[places], sampling, items, with_support
            )
            for place, token, number in zip(places, drawn.tolist(), numbers.tolist(), strict=True):
                tokens[place] = token
                self._running[place].logprobs.append(number)
        return tokens

    def _draw(
        self, logits: torch.Tensor, sampling: Sampling, items: list[_Running], with_support: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw a token for each of ``items``; note the supports where they are asked for."""
        seeds = [item.seed for item in items]
        positions = [item.sampled for item in items]
        if not with_support:
            return sample(logits, sampling, seeds, positions)
        drawn, numbers, supports = sample_with_support(logits, sampling, seeds, positions)
        for item, ids in zip(items, supports, strict=True):
            item.support.append(ids)
        return drawn, numbers

    def _next_logits(self) -> torch.Tensor:
        """Return the logits of each running request's next token, (requests, vocabulary)."""
        twins = _equal_prompts(self._running)
        leaders = [group[0] for group in twins]
        rows: dict[int, int] = {}
        parts = []
        for batch in _batches(leaders):
            rows |= {item.number: len(rows) + place for place, item in enumerate(batch)}
            parts.append(self._forward(batch))
        for leader, *others in twins:
            if others:
                slots = [item.slot.index for item in others]
                self._store.copy(leader.slot.index, slots, len(leader.slot.tokens))
            for item in (leader, *others):
                rows[item.number] = rows[leader.number]
                if item.missing > 1:
                    self._table.remember(item.slot, len(item.slot.tokens) - 1)
                item.slot.filled = len(item.slot.tokens)
        order = [rows[item.number] for item in self._running]
        logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        return logits if order == list(range(len(logits))) else logits[order]

    def _forward(self, batch: list[_Running]) -> torch.Tensor:
        """Compute the missing tokens of a batch; return the logits after each, (batch, vocabulary).

        The new tokens of a row end at the last column of the batch; what is before them, and rows
        that only fill up the batch, go to a column of the store that nothing reads.
        """
        longest = max(item.missing for item in batch)
        width = 1 if longest == 1 else round_up(longest, _WIDTH_MULTIPLE)
        rows, places = _rows([item.slot.index for item in batch], width)
        ids = np.zeros((len(rows), width), np.int64)
        positions = np.full((len(rows), width), -1)
        for place, item in zip(places, batch, strict=True):
            slot = item.slot
            ids[place, width - item.missing :] = slot.tokens[slot.filled :]
            positions[place, width - item.missing :] = range(slot.filled, len(slot.tokens))
            self.computed += item.missing
        length = round_up(max(len(item.slot.tokens) for item in batch), KEYS_MULTIPLE)
        device = self.model.device
        at = torch.from_numpy(positions).to(device)
        scratch = self._store.columns - 1
        self._store.select(rows, torch.where(at < 0, scratch, at), length)
        out = self.model(
            input_ids=torch.from_numpy(ids).to(device),
            attention_mask=self._mask(at.clamp(min=0), length),
            position_ids=at.clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
            **{self._store_argument: self._store},
        )
        logits: torch.Tensor = out.logits[:, -1]
        return logits if places == list(range(len(logits))) else logits[places]

    def _mask(self, positions: torch.Tensor, length: int) -> torch.Tensor:
        """Return 0 where a token sees a column of the store, else minus infinity."""
        columns = torch.arange(length, device=positions.device)
        hidden = columns > positions[:, None, :, None]
        mask = torch.zeros(hidden.shape, dtype=self.model.dtype, device=positions.device)
        return mask.masked_fill_(hidden, -torch.inf)


def _store_argument(model: Any) -> str:
    """Return the name by which a model takes its cache: transformers 5.24 calls it ``cache``."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # of peft
    parameters = inspect.signature(base.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def _equal_prompts(running: Sequence[_Running]) -> list[list[_Running]]:
    """Return the requests in groups whose missing tokens need be computed once only."""
    groups: dict[Any, list[_Running]] = {}
    for item in running:
        key = item.number if item.missing == 1 else tuple(item.slot.tokens)
        groups.setdefault(key, []).append(item)
    return [sorted(group, key=lambda item: item.missing) for group in groups.values()]


def _batches(items: list[_Running]) -> list[list[_Running]]:
    """Divide requests into batches of similar numbers of missing tokens."""
    batches: list[list[_Running]] = []
    widest = 0
    for item in sorted(items, key=lambda item: (-item.missing, item.slot.index)):
        full = batches and (len(batches[-1]) + 1) * widest > max(_TOKENS_AT_ONCE, widest)
        narrow = item.missing == 1 or round_up(item.missing, _WIDTH_MULTIPLE) * 2 < widest
        if not batches or full or (narrow and widest > 1):
            batches.append([])
            widest = 1 if item.missing == 1 else round_up(item.missing, _WIDTH_MULTIPLE)
        batches[-1].append(item)
    return [sorted(batch, key=lambda item: item.slot.index) for batch in batches]


def _rows(slots: list[int], width: int) -> tuple[list[int], list[int]]:
    """Return the slots of the rows of a batch, and the row of each of ``slots`` (ascending).

    Neighbouring slots are taken as they lie, even with idle ones between them, if that is cheaper
    than to gather them. The number of rows is a multiple of `ROWS_MULTIPLE`.
    """
    first = slots[0] // ROWS_MULTIPLE * ROWS_MULTIPLE
    end = round_up(slots[-1] + 1, ROWS_MULTIPLE)
    idle = end - first - len(slots)
    if idle <= ROWS_MULTIPLE or (width == 1 and idle <= len(slots)):
        return list(range(first, end)), [slot - first for slot in slots]
    fillers = round_up(len(slots), ROWS_MULTIPLE) - len(slots)
    return slots + [slots[0]] * fillers, list(range(len(slots)))
