"""Tokenizers: what a context needs of one, and a Hugging Face tokenizer as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from gem_core.episodes.special_tokens import SpecialTokens
from gem_core.episodes.templates import Template
from gem_core.episodes.token_cache import TokenCache
from gem_core.episodes.turn_ends import find_stop_ids
from gem_core.errors import require_kind, require_methods

_GET_TEMPLATE = "gem_core.episodes.context.get_template(name, tokenizer) returns one."
_LOAD_TOKENIZER = "transformers.AutoTokenizer.from_pretrained(...) returns one."


class Tokenizer(Protocol):
    """The interface of a tokenizer that `Context` needs."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``, without added special tokens."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``, without special tokens."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an action."""


class HFTokenizer:
    """A Hugging Face tokenizer as a `Tokenizer`; observations that repeat are cached.

    Args:
        tokenizer: the tokenizer.
        template: its text at the end of an action and the tokenizer's eos token end an action.
        eos_ids: further ids that end one: those that the model's ``generation_config.json`` names,
            see `gem_core.runs.generation_config.read_eos_ids`.
    """

    def __init__(
        self, tokenizer: Any, template: Template | None = None, eos_ids: Iterable[int] = ()
    ) -> None:
        require_methods("HFTokenizer(tokenizer)", tokenizer, ("encode", "decode"), _LOAD_TOKENIZER)
        require_kind("HFTokenizer(template=)", template, (Template, type(None)), _GET_TEMPLATE)
        closing = template.close if template else ""
        self._set_up(tokenizer, find_stop_ids(tokenizer, closing, eos_ids))

    def _set_up(self, hf: Any, stop_ids: frozenset[int]) -> None:
        self.hf = hf
        self._stop_ids = stop_ids
        self.special = SpecialTokens(hf)
        self._encode = TokenCache(lambda text: tuple(self.special.encode(text)))

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        return list(self._encode(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `Tokenizer`."""
        return str(self.hf.decode(token_ids, skip_special_tokens=True))

    @property
    def stop_ids(self) -> frozenset[int]:
        """See `Tokenizer`."""
        return self._stop_ids

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_tokenizer, (self.hf, self._stop_ids)


def _rebuild_tokenizer(hf: Any, stop_ids: frozenset[int]) -> HFTokenizer:
    tokenizer = HFTokenizer.__new__(HFTokenizer)
    tokenizer._set_up(hf, stop_ids)
    return tokenizer
