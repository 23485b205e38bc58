"""What an engine holds that takes turns with training on one GPU: its weights and its caches.

vLLM (``sleep``, ``wake_up``, ``reset_prefix_cache``) and SGLang (``release_memory_occupation``,
``resume_memory_occupation``, ``flush_cache``) give their memory back while a model is trained. The
stand-ins of a CPU have no memory to give back, but they follow the trainer's calls here, so that a
call that is missing or comes in the wrong order ends a run on a CPU, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gem_core.errors import GemError

PARTS = ("weights", "kv_cache")
"""What sleeps and wakes, by vLLM's tags."""


class EngineState:
    """The memory of one engine, as the trainer's calls leave it.

    Args:
        caches: the engine keeps what it computed of a prompt for later requests.

    Attributes:
        counts: how often it slept, woke up, got weights and was asked, and emptied its cache.
    """

    def __init__(self, caches: bool = True) -> None:
        self.caches = caches
        self.counts: Counter[str] = Counter()
        self._awake = set(PARTS)
        self._loaded = True
        self._cached = False
        self._stale = False

    @property
    def is_sleeping(self) -> bool:
        """Whether a part of the memory was given back."""
        return len(self._awake) < len(PARTS)

    def sleep(self, level: int = 1) -> None:
        """Give the memory back: level 1 keeps the weights elsewhere, level 2 discards them.

        Either discards the cache, as vLLM does.
        """
        self.counts["sleep"] += 1
        self._awake.clear()
        self._loaded = self._loaded and level == 1
        self._cached = self._stale = False

    def release_cache(self) -> None:
        """Give the memory of the cache back, and keep the weights."""
        self._awake.discard("kv_cache")
        self.reset_cache()

    def wake_up(self, tags: Iterable[str] | None = None) -> None:
        """Take memory for ``tags`` of `PARTS`, by default for both. Raises GemError for others."""
        parts = set(PARTS if tags is None else tags)
        if not parts <= set(PARTS):
            raise GemError(f"An engine was told to wake {sorted(parts)}: it has {list(PARTS)}.")
        self.counts["wake_up"] += 1
        self._awake |= parts

    def load(self) -> None:
        """Take new weights; what was computed with the old ones is stale.

        Raises:
            GemError: there is no memory for them.
        """
        if "weights" not in self._awake:
            raise GemError("An engine got weights while it slept: wake up its weights before.")
        self.counts["load"] += 1
        self._loaded = True
        self._stale = self._cached

    def reset_cache(self) -> None:
        """Discard what was computed of prompts."""
        self.counts["reset_cache"] += 1
        self._cached = self._stale = False

    def ask(self) -> None:
        """A completion is asked for.

        Raises:
            GemError: it would be computed without weights or a cache, or with one of old weights.
        """
        asleep = [part for part in PARTS if part not in self._awake]
        if asleep:
            raise GemError(f"An engine was asked while its {' and '.join(asleep)} slept: wake it.")
        if not self._loaded:
            raise GemError("An engine was asked that lost its weights in its sleep: load them.")
        if self._stale:
            raise GemError(
                "An engine was asked whose cache is of weights before: reset its prefix cache."
            )
        self.counts["ask"] += 1
        self._cached = self.caches
