"""The file in which training, evaluation and comparison keep episodes: ``episodes.jsonl.gz``.

It is an ordinary gzip file of JSON lines (``zcat episodes.jsonl.gz`` prints them), written in
blocks: every append is one or more gzip members, each whole in itself. So a killed writer loses at
most the block that it was writing, and one episode can be read without the others. The header of a
block has, in the field that gzip keeps for such things, its length and a row per line
(`gem_core.runs.directory.episode_columns.COLUMNS`): what a list shows of a million episodes is read
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
from typing import Annotated, Any, BinaryIO, Literal

import msgspec

from gem_core.errors import RunError
from gem_core.runs.directory.episode_columns import Columns, columns_of
from gem_core.runs.directory.files import open_file, open_to_append

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
MAX_LINE = 64 << 20
"""Bytes of an episode, at most; a longer one is neither written nor read."""
MAX_BLOCK = MAX_LINE + BLOCK_BYTES
"""Bytes of a block, at most, compressed or not: what reading one needs is bounded."""
_MAX_ROWS = 4 << 20  # bytes of the columns of a block
_LOST = 64 << 20  # bytes that are searched for the next block after damaged ones

Row = tuple[Annotated[int, msgspec.Meta(ge=0)], Columns | None]
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
        size: bytes of its lines.
    """

    start: int
    end: int
    lines: int
    damaged: bool
    size: int
    _member: bytes
    _columns: bytes

    def text(self) -> bytes:
        """Return its lines.

        Raises:
            RunError: the block is damaged: it is not what its header says. No more is unpacked
                than the header says, which is at most `MAX_BLOCK`.
        """
        text = _unpacked(self._member, self.size, 31)
        if text is None or text.count(b"\n") != self.lines or not text.endswith(b"\n"):
            raise RunError(f"The block at byte {self.start} is damaged.")
        return text

    def rows(self) -> list[Row]:
        """Return a row per line, without decompressing the block where its header has them.

        Raises:
            RunError: the block is damaged.
        """
        if not self._columns:
            return [(len(line), columns_of(line)) for line in self.text()[:-1].split(b"\n")]
        packed = _unpacked(self._columns, None, 15)
        try:
            rows = _ROWS.decode(packed or b"")
        except (msgspec.DecodeError, RecursionError):  # a ValidationError is one
            rows = []
        lengths = sum(length + 1 for length, _ in rows)
        if len(rows) != self.lines or lengths != self.size:
            raise RunError(f"The header of the block at byte {self.start} is damaged.")
        return rows


def episodes_file(folder: Path) -> Path:
    """Return the file of a run's episodes: `PLAIN_FILE` where only that exists, else `FILE`."""
    blocks = folder / FILE
    plain = folder / PLAIN_FILE
    return plain if plain.exists() and not blocks.exists() else blocks


# -- writing -------------------------------------------------------------------------------------


def append(folder: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append episodes to the file of a run; each block is handed to the system whole.

    Raises:
        RunError: a block could not be written whole, or an episode is longer than `MAX_LINE`.
    """
    if episodes_file(folder).name == PLAIN_FILE:
        convert(folder)
    lines = (_line_of(record) for record in records)
    target = folder / FILE
    descriptor = open_to_append(target)
    try:
        for block in _blocks_of(lines):
            if os.write(descriptor, block) != len(block):
                raise RunError(f"{target} cannot be written: is the disk full?")
    finally:
        os.close(descriptor)


def _line_of(record: Mapping[str, Any]) -> bytes:
    line = json.dumps(record).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise RunError(
            f"An episode of {len(line):,} bytes cannot be stored (at most {MAX_LINE:,}): lower "
            "limits.max_episode_tokens, or store none (train.log_episodes=0)."
        )
    return line


def convert(folder: Path) -> None:
    """Move the lines of `PLAIN_FILE` into blocks; a killed process leaves one whole file."""
    plain = folder / PLAIN_FILE
    partial = folder / f"{FILE}.partial"
    partial.unlink(missing_ok=True)
    with partial.open("xb") as file:
        for block in _blocks_of(line + b"\n" for line in read_lines(plain)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / FILE)
    plain.unlink()


def repair(folder: Path) -> None:
    """Remove the incomplete block that a killed writer left at the end."""
    path = folder / FILE
    end = 0
    try:
        file = open_file(path)
    except FileNotFoundError:
        return
    with file:
        for block in scan(file, lost=None):
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
    try:
        file = open_file(path)
    except FileNotFoundError:
        return
    with file:
        if path.name.endswith(".gz"):
            if not begins_with_block(file):
                raise RunError(f"{path} is not a file of episodes as gem-core writes them.")
            end = 0
            for block in scan(file):
                if block.damaged:
                    raise RunError(f"{path} is damaged before byte {block.start}.")
                yield from block.text()[:-1].split(b"\n")
                end = block.end
            if state_at(file, end) == "damaged":
                raise RunError(f"{path} is damaged after byte {end}.")
            return
        while line := file.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise RunError(f"{path} has a line of more than {MAX_LINE:,} bytes.")
            if line.endswith(b"\n") or _is_json(line):
                yield line.rstrip(b"\n")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the episodes of a file as they were written.

    Raises:
        RunError: the file is damaged.
    """
    for number, line in enumerate(read_lines(path), 1):
        yield parse_record(line, f"{path}: line {number}")


def parse_record(line: bytes, where: str) -> dict[str, Any]:
    """Return the episode in a line.

    Raises:
        RunError: it is none; the message begins with ``where``.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise RunError(f"{where} is not JSON.") from None
    if not isinstance(record, dict) or columns_of(line) is None:
        raise RunError(f"{where} is no episode.")
    return record


def begins_with_block(file: BinaryIO) -> bool:
    """Whether a file is empty, or begins as `append` begins one."""
    file.seek(0)
    head = file.read(len(_SIGNATURE))
    return head == _SIGNATURE[: len(head)]


def state_at(file: BinaryIO, position: int) -> Literal["whole", "unfinished", "damaged"]:
    """Return what is at ``position``: a whole block or the end, the beginning of a block, or else.

    A killed writer leaves the beginning of a block, and one that is writing has one.
    """
    left = file.seek(0, os.SEEK_END) - position
    if left <= 0 or _read_block(file, position) is not None:
        return "whole"
    file.seek(position)
    head = file.read(_HEAD.size + _FACTS.size)
    if head[:10] != _SIGNATURE[: len(head)]:
        return "damaged"
    if len(head) < _HEAD.size + _FACTS.size:
        return "unfinished"
    length = int(_FACTS.unpack_from(head, _HEAD.size)[0])
    return "unfinished" if left < length <= MAX_BLOCK else "damaged"


def scan(file: BinaryIO, position: int = 0, lost: int | None = _LOST) -> Iterator[Block]:
    """Yield the whole blocks from ``position``, which is 0 or the end of another block.

    Damaged bytes are passed over up to the next block. A last block that is incomplete is not
    yielded: it may still be written.

    Args:
        file: a file of episodes.
        position: where to begin.
        lost: so many damaged bytes are searched for the next block; ``None`` = all.
    """
    damaged = False
    while True:
        block = _read_block(file, position, damaged)
        if block is not None:
            yield block
            position = block.end
            damaged = False
            continue
        following = _find_block(file, position + 1, lost)
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
    if not len(head) + field + 8 - _FACTS.size < length <= MAX_BLOCK:
        return None
    if not 0 < size <= MAX_BLOCK or not 0 < lines <= BLOCK_LINES:
        return None
    file.seek(start + length - 8)  # its end tells whether it is one, before it is read
    if file.read(8) != struct.pack("<II", checksum, size):
        return None
    file.seek(start)
    member = file.read(length)
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


def _find_block(file: BinaryIO, position: int, lost: int | None) -> int | None:
    """Return where the next whole block begins, from ``position``; ``None`` if there is none."""
    last = None if lost is None else position + lost
    while last is None or position < last:
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
    return None


def _unpacked(data: bytes, size: int | None, wbits: int) -> bytes | None:
    """Return what ``data`` unpacks to, if it has ``size`` bytes, or at most `_MAX_ROWS`."""
    unpacker = zlib.decompressobj(wbits)
    most = _MAX_ROWS if size is None else size
    try:
        found = unpacker.decompress(data, most + 1)
    except zlib.error:
        return None
    whole = unpacker.eof and not unpacker.unused_data and len(found) <= most
    return found if whole and size in (None, len(found)) else None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
