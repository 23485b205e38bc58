"""The text of each token of an episode, from the ``tokenizer.json`` of the run's model.

Byte-level vocabularies (GPT-2, Llama 3, Qwen, the tiny model) need no package; of any other, the
viewer shows the numbers of the tokens.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gem_core.training.runs import RunDir


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


def read_pieces(file: Path) -> Pieces | None:
    """Return the vocabulary of a ``tokenizer.json``; ``None`` if it is not a byte-level one."""
    data = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = data.get("model", {}).get("vocab")
    if not isinstance(vocabulary, dict) or not _is_byte_level(data.get("decoder")):
        return None
    alphabet = byte_alphabet()
    by_id = {}
    for text, number in vocabulary.items():
        by_id[number] = bytes(alphabet[c] for c in text if c in alphabet)
    for token in data.get("added_tokens", ()):
        by_id[token["id"]] = token["content"].encode()
    return Pieces(by_id)


def find_tokenizer(run: RunDir) -> Path | None:
    """Return the ``tokenizer.json`` of the run's model, a checkpoint, or the model before."""
    recipe = json.loads((run.path / "recipe.json").read_text(encoding="utf-8"))
    start = Path(str(recipe.get("model", {}).get("path", "")))
    names = ("tokenizer.json", "*/tokenizer.json", "*/*/tokenizer.json", "*/*/*/tokenizer.json")
    places: list[Path] = [run.model / "tokenizer.json"]
    places += [path for name in names for path in sorted(run.checkpoints.glob(name))]
    if start.is_absolute():
        places.append(start / "tokenizer.json")
    return next((path for path in places if path.is_file()), None)


def byte_alphabet() -> dict[str, int]:
    """Return the character with which byte-level vocabularies write each byte (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return alphabet


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    parts: Sequence[Any] = decoder.get("decoders", [decoder])
    return any(part.get("type") == "ByteLevel" for part in parts)
