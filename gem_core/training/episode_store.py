"""The file in which training, evaluation and comparison keep episodes: ``episodes.jsonl.gz``.

It is an ordinary gzip file of JSON lines (``zcat episodes.jsonl.gz`` prints them), written in
blocks: every append is one or more gzip members, each whole in itself. So a killed writer loses at
most the block that it was writing, and one episode can be read without the others. The header of a
block has, in the field that gzip keeps for such things, its length and a row per line
(`gem_core.training.episode_columns.COLUMNS`): what a list shows of a million episodes is read
without decompressing one.

Runs of older versions have ``episodes.jsonl``, which is read as well; the first append to such a
run moves its lines into blocks.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gem_core.errors import RunError
from gem_core.training.episode_columns import Columns, columns_of

FILE = "episodes.jsonl.gz"
PLAIN_FILE = "episodes.jsonl"
"""The file of older versions: the lines without compression."""
BLOCK_LINES = 256
BLOCK_BYTES = 1_000_000
_LEVEL = 6
_SIGNATURE = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"  # deflate, with a field, no time
_HEAD = struct.Struct("<10sH2sH")  # signature, length of the fields, name and length of ours
_NAME = b"GC"
_FACTS = struct.Struct("<IIII")  # length of the block, checksum, bytes and number of its lines
_MOST_COLUMNS = 60_000  # the length of the field has 16 bits
_SEARCHED = 1 << 20

Row = tuple[int, Columns | None]
"""The length of a line, without its end, and its columns, if it is an episode."""
_ROWS = msgspec.msgpack.Decoder(list[Row])


@dataclass(frozen=True)
class Block:
    """A whole block of a file.

    Attributes:
        start: position of its first byte.
        end: position of the first byte after it.
        lines: number of its lines.
        damaged: whether the bytes before it are not a block.
    """

    start: int
    end: int
    lines: int
    damaged: bool
    _size: int
    _member: bytes
    _columns: bytes

    def text(self) -> bytes:
        """Return its lines.

        Raises:
            RunError: the block is damaged.
        """
        try:
            return zlib.decompress(self._member, wbits=31, bufsize=self._size)
        except zlib.error as error:
            raise RunError(f"The block at byte {self.start} is damaged: {error}.") from None

    def rows(self) -> list[Row]:
        """Return a row per line, without decompressing the block where its header has them."""
        if self._columns:
            return _ROWS.decode(zlib.decompress(self._columns))
        return [(len(line), columns_of(line)) for line in self.text()[:-1].split(b"\n")]


def episodes_file(folder: Path) -> Path:
    """Return the file of a run's episodes: `PLAIN_FILE` where only that exists, else `FILE`."""
    blocks = folder / FILE
    plain = folder / PLAIN_FILE
    return plain if plain.exists() and not blocks.exists() else blocks


# -- writing -------------------------------------------------------------------------------------


def append(folder: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append episodes to the file of a run; each block is handed to the system whole.

    Raises:
        RunError: a block could not be written whole.
    """
    if episodes_file(folder).name == PLAIN_FILE:
        convert(folder)
    lines = (json.dumps(record).encode() + b"\n" for record in records)
    target = folder / FILE
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        for block in _blocks_of(lines):
            if os.write(descriptor, block) != len(block):
                raise RunError(f"{target} cannot be written: is the disk full?")
    finally:
        os.close(descriptor)


def convert(folder: Path) -> None:
    """Move the lines of `PLAIN_FILE` into blocks; a killed process leaves one whole file."""
    plain = folder / PLAIN_FILE
    partial = folder / f"{FILE}.partial"
    with partial.open("wb") as file:
        for block in _blocks_of(line + b"\n" for line in read_lines(plain)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / FILE)
    plain.unlink()


def repair(folder: Path) -> None:
    """Remove the incomplete block that a killed writer left at the end."""
    path = folder / FILE
    if not path.exists():
        return
    end = 0
    with path.open("rb") as file:
        for block in scan(file):
            end = block.end
    if end < path.stat().st_size:
        os.truncate(path, end)


def _blocks_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BLOCK_LINES or size + len(line) > BLOCK_BYTES):
            yield _block(batch)
            batch = []
            size = 0
        batch.append(line)
        size += len(line)
    if batch:
        yield _block(batch)


def _block(lines: Sequence[bytes]) -> bytes:
    """Return the gzip member of ``lines``, each of which ends with its newline."""
    text = b"".join(lines)
    rows = [(len(line) - 1, columns_of(line)) for line in lines]
    columns = zlib.compress(msgspec.msgpack.encode(rows))
    if len(columns) > _MOST_COLUMNS:  # extraordinary names: the lines have to be read
        columns = b""
    packer = zlib.compressobj(_LEVEL, wbits=-15)  # before Python 3.11 zlib.compress has no wbits
    deflated = packer.compress(text) + packer.flush()
    checksum = zlib.crc32(text)
    field = _FACTS.size + len(columns)
    length = _HEAD.size + field + len(deflated) + 8
    head = _HEAD.pack(_SIGNATURE, 4 + field, _NAME, field)
    facts = _FACTS.pack(length, checksum, len(text), len(lines))
    return b"".join((head, facts, columns, deflated, struct.pack("<II", checksum, len(text))))


# -- reading -------------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file of episodes, without their ends; none where there is no file.

    What a killed writer left incomplete at the end is left out.

    Raises:
        RunError: the file is damaged elsewhere.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        if path.name.endswith(".gz"):
            for block in scan(file):
                if block.damaged:
                    raise RunError(f"{path} is damaged before byte {block.start}.")
                yield from block.text()[:-1].split(b"\n")
            return
        for line in file:
            if line.endswith(b"\n") or _is_json(line):
                yield line.rstrip(b"\n")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the episodes of a file as they were written.

    Raises:
        RunError: the file is damaged.
    """
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield json.loads(line)
        except ValueError:
            raise RunError(f"{path}: line {number} is not JSON.") from None


def scan(file: BinaryIO, position: int = 0) -> Iterator[Block]:
    """Yield the whole blocks from ``position``, which is 0 or the end of another block.

    Damaged bytes are passed over up to the next block. A last block that is incomplete is not
    yielded: it may still be written.
    """
    damaged = False
    while True:
        block = _read_block(file, position, damaged)
        if block is not None:
            yield block
            position = block.end
            damaged = False
            continue
        following = _find_block(file, position + 1)
        if following is None:
            return
        position = following
        damaged = True


def _read_block(file: BinaryIO, start: int, damaged: bool = False) -> Block | None:
    """Return the block at ``start``; ``None`` if there is no whole one."""
    file.seek(start)
    head = file.read(_HEAD.size + _FACTS.size)
    if len(head) < _HEAD.size + _FACTS.size:
        return None
    signature, fields, name, field = _HEAD.unpack_from(head)
    length, checksum, size, lines = _FACTS.unpack_from(head, _HEAD.size)
    if signature != _SIGNATURE or name != _NAME or fields != 4 + field:
        return None
    member = head + file.read(length - len(head)) if length > len(head) + 8 else b""
    if len(member) != length or struct.unpack("<II", member[-8:]) != (checksum, size):
        return None
    columns = member[len(head) : _HEAD.size + field]
    return Block(start, start + length, lines, damaged, size, member, columns)


def read_block(file: BinaryIO, start: int) -> Block:
    """Return the block that begins at byte ``start``.

    Raises:
        RunError: there is none.
    """
    block = _read_block(file, start)
    if block is None:
        raise RunError(f"{getattr(file, 'name', 'the file')} has no block at byte {start}.")
    return block


def _find_block(file: BinaryIO, position: int) -> int | None:
    """Return where the next whole block begins, from ``position``; ``None`` if there is none."""
    while True:
        file.seek(position)
        chunk = file.read(_SEARCHED)
        place = chunk.find(_SIGNATURE)
        while place >= 0:
            if _read_block(file, position + place) is not None:
                return position + place
            place = chunk.find(_SIGNATURE, place + 1)
        if len(chunk) < _SEARCHED:
            return None
        position += _SEARCHED - len(_SIGNATURE) + 1


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
