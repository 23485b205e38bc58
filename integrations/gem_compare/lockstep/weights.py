"""The largest difference between the trained weights of two runs.

The files are read with NumPy alone, since a comparison runs in an environment without torch. The
format of safetensors: the length of a header (8 bytes, little-endian), the header (JSON: name ->
type, shape, offsets), the data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gem_core.errors import RunError

_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


class WeightDifference(NamedTuple):
    """How two models differ.

    Attributes:
        largest: the largest absolute difference of a weight.
        parameter: where it is.
        relative: L2 norm of all differences over that of the first model's weights.
        only_in_one: parameters that one of the files lacks (a tied head, for example).
    """

    largest: float
    parameter: str
    relative: float
    only_in_one: list[str]


def weight_difference(one: Path, other: Path) -> WeightDifference:
    """Compare two models in the format of Hugging Face.

    Args:
        one: directory with ``*.safetensors``.
        other: likewise.

    Raises:
        RunError: a directory has no such file, a type is unknown, or shapes differ.
    """
    mine = dict(read_weights(one))
    theirs = dict(read_weights(other))
    largest = (0.0, "")
    squares = 0.0
    whole = 0.0
    for name in sorted(mine.keys() & theirs.keys()):
        if mine[name].shape != theirs[name].shape:
            raise RunError(f"{name} has another shape in {one} than in {other}.")
        apart = np.abs(mine[name] - theirs[name])
        largest = max(largest, (float(apart.max(initial=0.0)), name))
        squares += float((apart**2).sum())
        whole += float((mine[name] ** 2).sum())
    relative = math.sqrt(squares / whole) if whole else math.nan
    return WeightDifference(*largest, relative, sorted(mine.keys() ^ theirs.keys()))


def read_weights(folder: Path) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    """Yield name and weights, as float64, of every parameter of a model.

    Raises:
        RunError: there is no ``*.safetensors``, or a type is unknown.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RunError(f"{folder} has no *.safetensors, so its weights cannot be compared.")
    for path in files:
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        body = memoryview(data)[start:]
        for name, entry in header.items():
            yield name, _array(name, entry, body)


def _array(name: str, entry: dict[str, Any], data: memoryview) -> npt.NDArray[np.float64]:
    first, end = entry["data_offsets"]
    raw = data[first:end]
    if entry["dtype"] == "BF16":  # the upper half of a float32
        wide = np.frombuffer(raw, "<u2").astype(np.uint32) << np.uint32(16)
        values: Any = wide.view(np.float32)
    elif entry["dtype"] in _TYPES:
        values = np.frombuffer(raw, np.dtype(_TYPES[entry["dtype"]]).newbyteorder("<"))
    else:
        raise RunError(f"{name} has the type {entry['dtype']}, which cannot be compared.")
    result: npt.NDArray[np.float64] = values.astype(np.float64).reshape(entry["shape"])
    return result
