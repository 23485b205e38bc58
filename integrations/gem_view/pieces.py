"""The text of each token of an episode, from the ``tokenizer.json`` of the run's model.

Two kinds of vocabularies need no package: byte-level ones (GPT-2, Llama 3, Qwen, the tiny model),
and those that write a space as another character and a lone byte as ``<0x0A>`` (Gemma). Of any
other, the viewer shows the numbers of the tokens.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gem_core.errors import RunError
from gem_core.runs.directory.files import convert, open_file
from gem_core.runs.directory.run_dir import RunDir

TOKENIZER_BYTES = 64 << 20
"""Bytes of a ``tokenizer.json``, at most."""
_TOKENIZER = "tokenizer.json"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_DEPTH = 3  # folders below checkpoints


class Pieces:
    """A vocabulary: token id -> bytes."""

    def __init__(self, vocabulary: dict[int, bytes]) -> None:
        self.vocabulary = vocabulary

    def texts(self, token_ids: Iterable[int]) -> list[str]:
        """Return the text of every token, which together are the decoded text.

        A character whose bytes are spread over several tokens belongs to the last of them.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(self.vocabulary.get(t, b"\xef\xbf\xbd")) for t in token_ids]


class _Token(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct, frozen=True):
    vocab: Any = None


class _Tokenizer(msgspec.Struct):
    model: _Model = _Model()
    decoder: dict[str, Any] | None = None
    added_tokens: list[_Token] = []


def read_pieces(file: Path) -> Pieces | None:
    """Return the vocabulary of a ``tokenizer.json``; ``None`` if it is of no known kind.

    Raises:
        RunError: the file cannot be read, or is no ``tokenizer.json``.
    """
    with open_file(file, TOKENIZER_BYTES) as opened:
        text = opened.read(TOKENIZER_BYTES + 1)
    try:
        data = msgspec.json.decode(text, type=_Tokenizer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunError(f"{file} is no tokenizer.json: {error}.") from None
    to_bytes = _find_decoder(data.decoder)
    if not isinstance(data.model.vocab, dict) or to_bytes is None:
        return None
    vocabulary = convert(data.model.vocab, dict[str, int], str(file))
    by_id = {number: to_bytes(word) for word, number in vocabulary.items()}
    by_id |= {token.id: token.content.encode() for token in data.added_tokens}
    return Pieces(by_id)


def find_tokenizer(run: RunDir) -> Path | None:
    """Return the ``tokenizer.json`` of the run's model, or of one of its checkpoints.

    It is in the run's folder, and no link leads to it. A model elsewhere is not read, though the
    recipe may name it: a run that came from somebody else could name any file of this machine.
    """
    for folder in (run.model, run.checkpoints):
        if not folder.is_symlink():
            for found in _tokenizers(folder, _DEPTH):
                return found
    return None


def _tokenizers(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the ``tokenizer.json`` in ``folder`` and below it, the nearest first."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(e.name == _TOKENIZER and e.is_file(follow_symlinks=False) for e in entries):
        yield folder / _TOKENIZER
    for entry in entries if depth else ():
        if entry.is_dir(follow_symlinks=False):
            yield from _tokenizers(Path(entry.path), depth - 1)


def byte_alphabet() -> dict[str, int]:
    """Return the character with which byte-level vocabularies write each byte (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return alphabet


def _find_decoder(decoder: Any) -> Callable[[str], bytes] | None:
    """Return what makes bytes of a word of the vocabulary; ``None`` for an unknown decoder."""
    if not isinstance(decoder, dict):
        return None
    parts = decoder.get("decoders", [decoder])
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        return None
    if any(part.get("type") == "ByteLevel" for part in parts):
        alphabet = byte_alphabet()
        return lambda word: bytes(alphabet[c] for c in word if c in alphabet)
    match parts:
        case [
            {"type": "Replace", "pattern": {"String": str(space)}, "content": str(content)},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ] if len(space) == len(content) == 1:
            return lambda word: _decode_fallback(word.replace(space, content))
    return None


def _decode_fallback(word: str) -> bytes:
    """Return the bytes of a word, which may be the name of one byte."""
    byte = _BYTE.fullmatch(word)
    return bytes.fromhex(byte[1]) if byte else word.encode(errors="replace")
