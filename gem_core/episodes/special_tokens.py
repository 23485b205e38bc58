"""Special tokens in texts: those of a template, and those that an observation merely spells.

A tokenizer makes one token of the letters ``<|im_end|>`` wherever they occur. In a template that is
intended; in an observation it is not: an environment that repeats an action would turn the letters
that a policy wrote into the token that ends a turn. Therefore the text of an environment (or of a
policy) is guarded before it enters a template: each spelt special token is replaced by a mark, and
`SpecialTokens.encode` encodes the marks as the letters that they stand for, as transformers does
with ``split_special_tokens=True``. Text without such a spelling is encoded as usual.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from gem_core.errors import GemError

_OPEN = "\ufdd0"  # two code points that Unicode reserves for uses inside a program
_CLOSE = "\ufdd1"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


def added_tokens(hf: Any) -> list[str]:
    """Return the texts of a tokenizer's added tokens, special ones and others (``<think>``)."""
    texts = {str(token.content) for token in _decoder(hf).values()}
    return sorted(texts | _special_texts(hf))


def _decoder(hf: Any) -> dict[int, Any]:
    return dict(getattr(hf, "added_tokens_decoder", None) or {})


def _special_texts(hf: Any) -> set[str]:
    flagged = {str(token.content) for token in _decoder(hf).values() if token.special}
    return {text for text in flagged | {str(t) for t in hf.all_special_tokens} if text.strip()}


class SpecialTokens:
    """The special tokens of a Hugging Face tokenizer.

    Attributes:
        ids: the id of each special token, by its text.
    """

    def __init__(self, hf: Any) -> None:
        self.hf = hf
        texts = sorted(_special_texts(hf), key=len, reverse=True)
        self._texts = texts
        self.ids = {text: int(hf.convert_tokens_to_ids(text)) for text in texts}
        self._spelt = re.compile("|".join(map(re.escape, texts)) or "(?!)")
        self._meant = re.compile("|".join(f"({p})" for p in self._patterns()) or "(?!)")
        self._letters_only: Any = None

    def _patterns(self) -> list[str]:
        """Return patterns of the special tokens, with the white space that they absorb."""
        flags = {str(token.content): token for token in _decoder(self.hf).values()}
        patterns = []
        for text in self._texts:
            token = flags.get(text)
            before = r"\s*" if token is not None and token.lstrip else ""
            after = r"\s*" if token is not None and token.rstrip else ""
            patterns.append(before + re.escape(text) + after)
        return patterns

    def guard(self, text: str) -> str:
        """Return ``text`` with a mark in place of each spelt special token."""
        if self._spelt.search(text) is None:
            return text
        return self._spelt.sub(lambda m: f"{_OPEN}{self._texts.index(m[0])}{_CLOSE}", text)

    def unguard(self, text: str) -> str:
        """Return the text that was guarded."""
        return _MARK.sub(self._letters, text) if _OPEN in text else text

    def _letters(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._texts[number] if number < len(self._texts) else mark[0]

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; a mark becomes the letters that it stands for."""
        if _OPEN not in text:
            return list(self.hf.encode(text, add_special_tokens=False))
        ids: list[int] = []
        end = 0
        for match in self._meant.finditer(text):
            ids += self._encode_letters(self.unguard(text[end : match.start()]))
            ids.append(self.ids[self._texts[(match.lastindex or 1) - 1]])
            end = match.end()
        return ids + self._encode_letters(self.unguard(text[end:]))

    def _encode_letters(self, text: str) -> list[int]:
        """Return the ids of ``text`` without any special token.

        Raises:
            GemError: the tokenizer makes special tokens even of parts of their texts.
        """
        if not text:
            return []
        ids = self._split(text)
        special = set(self.ids.values())
        if special.isdisjoint(ids):
            return ids
        # The tokenizer ignores split_special_tokens: cut each spelling after its first letter.
        cuts = [match.start() + 1 for match in self._spelt.finditer(text)]
        bounds = [0, *cuts, len(text)]
        pieces = [text[a:b] for a, b in pairwise(bounds)]
        ids = [i for piece in pieces for i in self.hf.encode(piece, add_special_tokens=False)]
        if not special.isdisjoint(ids):
            raise GemError(
                f"{type(self.hf).__name__} cannot encode a text that spells a special token "
                "without making that token of it: use a fast tokenizer."
            )
        return ids

    def _split(self, text: str) -> list[int]:
        """Encode with ``split_special_tokens``, without changing the settings of the tokenizer."""
        backend = getattr(self.hf, "backend_tokenizer", None)
        if backend is None or not hasattr(backend, "encode_special_tokens"):
            ids = self.hf.encode(text, add_special_tokens=False, split_special_tokens=True)
            return list(ids)
        if self._letters_only is None:
            copy = type(backend).from_str(backend.to_str())
            copy.no_padding()
            copy.no_truncation()
            copy.encode_special_tokens = True
            self._letters_only = copy
        return list(self._letters_only.encode(text, add_special_tokens=False).ids)
