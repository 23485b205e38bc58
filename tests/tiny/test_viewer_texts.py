"""The texts of tokens in the viewer are those that the library decodes."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers

from gem_view.pieces import read_pieces

TEXTS = ("3 + 4 = 7", "  two\n\nlines ", "Zürich, 東京, 🙂", "a<0x0A>b", "")


@pytest.fixture
def tokenizer():
    """A vocabulary with the decoder of Gemma's: single letters, and names of bytes."""
    words = [f"<0x{byte:02X}>" for byte in range(256)] + [*"▁abcdefghilnostw=+347"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_names_of_bytes(tokenizer, text, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    ids = tokenizer.encode(text).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    assert decoded == text
    assert "".join(read_pieces(path).texts(ids)) == decoded
