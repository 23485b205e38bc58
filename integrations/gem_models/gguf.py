"""Reads GGUF files: a header of keys and values, a table of tensors, and their blocks of numbers.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, version 3, little endian. Tensors
may be floats or have the types of `DECODERS`, in which a block of weights shares a scale.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gem_core.errors import DataError

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.uint8]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Type of a value -> its code in `struct`."""
_STRING, _ARRAY = 8, 9


class Tensor(NamedTuple):
    """Where a tensor is.

    Attributes:
        shape: sizes, the slowest dimension first (the file has them the other way round).
        kind: type of its numbers, a key of `DECODERS`.
        offset: bytes from the beginning of the file.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int


class Gguf:
    """A GGUF file.

    Args:
        path: the file.

    Attributes:
        values: keys of the header -> number, text or list.
        tensors: names -> where they are.

    Raises:
        DataError: it is no GGUF file of a known version, or it ends too early.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # an empty file
                raise self._damaged("is empty") from error
        self._at = 0
        try:
            self._read()
        except struct.error as error:
            raise self._damaged("ends too early") from error

    def _read(self) -> None:
        if self._bytes[:4] != _MAGIC:
            raise self._damaged("is no GGUF file")
        self._at = 4
        version, tensors, values = self._numbers("<IQQ")
        if version not in _VERSIONS:
            raise self._damaged(f"has version {version} of GGUF, not {_VERSIONS}")
        self.values: dict[str, Any] = {}
        for _ in range(values):
            key = self._text()
            self.values[key] = self._value(self._numbers("<I")[0])
        places = {self._text(): self._place() for _ in range(tensors)}
        alignment = self.values.get("general.alignment", 32)
        begin = math.ceil(self._at / alignment) * alignment
        self.tensors = {n: t._replace(offset=begin + t.offset) for n, t in places.items()}

    def load(self, name: str) -> Floats:
        """Return a tensor in float32.

        Raises:
            DataError: there is none of this name, its type is unknown, or the file ends too early.
        """
        if name not in self.tensors:
            raise self._damaged(f"has no tensor {name}")
        shape, kind, offset = self.tensors[name]
        if kind not in DECODERS:
            raise self._damaged(f"has {name} in type {kind}, which is not read (but {[*DECODERS]})")
        weights, size, decode = DECODERS[kind]
        count = math.prod(shape)
        blocks = count // weights
        if offset + blocks * size > len(self._bytes):
            raise self._damaged(f"ends before the end of {name}")
        raw = np.frombuffer(self._bytes, np.uint8, blocks * size, offset).reshape(blocks, size)
        return decode(raw).reshape(shape)

    def _numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return found

    def _text(self) -> str:
        (length,) = self._numbers("<Q")
        text = self._bytes[self._at : self._at + length]
        self._at += length
        return text.decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            inner, count = self._numbers("<IQ")
            if inner in _NUMBERS:
                return list(self._numbers(f"<{count}{_NUMBERS[inner]}"))
            return [self._value(inner) for _ in range(count)]
        if kind not in _NUMBERS:
            raise self._damaged(f"has a value of unknown type {kind}")
        return self._numbers(f"<{_NUMBERS[kind]}")[0]

    def _place(self) -> Tensor:
        (dimensions,) = self._numbers("<I")
        sizes = self._numbers(f"<{dimensions}Q")
        kind, offset = self._numbers("<IQ")
        return Tensor(tuple(reversed(sizes)), kind, offset)

    def _damaged(self, why: str) -> DataError:
        return DataError(f"{self._path} {why}: download it again, or name another file.")


def _floats(code: str) -> Callable[[Rows], Floats]:
    return lambda rows: rows.view(code).astype(np.float32)


def _bfloat16(rows: Rows) -> Floats:
    return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _half(rows: Rows, at: int) -> Floats:
    """Return the 16-bit float at byte ``at`` of each block, as a column."""
    return np.ascontiguousarray(rows[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(rows: Rows) -> Rows:
    """Return the lower halves of all bytes, then the upper ones."""
    return np.concatenate([rows & 15, rows >> 4], axis=-1)


def _q5_0(rows: Rows) -> Floats:
    """Blocks of 32: a scale, 32 highest bits, 32 times the lower four bits; 16 stands for zero."""
    high = np.unpackbits(rows[:, 2:6], axis=1, bitorder="little")
    return _half(rows, 0) * ((_nibbles(rows[:, 6:]) | high << 4).astype(np.float32) - 16)


def _q8_0(rows: Rows) -> Floats:
    """Blocks of 32: a scale and 32 bytes with a sign."""
    return _half(rows, 0) * rows[:, 2:].view(np.int8).astype(np.float32)


def _q4_k(rows: Rows) -> Floats:
    """Blocks of 256: the scale of eight scales, that of eight minima (six bits each), nibbles."""
    packed = rows[:, 4:16].reshape(-1, 3, 4)
    low, high, mixed = packed[:, 0], packed[:, 1], packed[:, 2]
    scales = np.concatenate([low & 63, (mixed & 15) | (low >> 6) << 4], axis=1)
    minima = np.concatenate([high & 63, (mixed >> 4) | (high >> 6) << 4], axis=1)
    numbers = _nibbles(rows[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    spread: Floats = (_half(rows, 0) * scales)[..., None] * numbers
    lowest: Floats = (_half(rows, 2) * minima)[..., None]
    return spread - lowest


def _q6_k(rows: Rows) -> Floats:
    """Blocks of 256: lower four bits, upper two bits, sixteen scales with a sign, their scale."""
    low = _nibbles(rows[:, :128].reshape(-1, 2, 64))
    pairs = rows[:, 128:192].reshape(-1, 2, 1, 32)
    high = (pairs >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3).reshape(-1, 2, 128)
    numbers = (low | high << 4).astype(np.float32).reshape(-1, 16, 16) - 32
    scales = _half(rows, 208) * rows[:, 192:208].view(np.int8).astype(np.float32)
    return scales[..., None] * numbers


DECODERS: Mapping[int, tuple[int, int, Callable[[Rows], Floats]]] = {
    0: (1, 4, _floats("<f4")),
    1: (1, 2, _floats("<f2")),
    6: (32, 22, _q5_0),
    8: (32, 34, _q8_0),
    12: (256, 144, _q4_k),
    14: (256, 210, _q6_k),
    30: (1, 2, _bfloat16),
}
"""Type of a tensor -> weights and bytes of a block, and what decodes blocks [blocks, bytes]."""
