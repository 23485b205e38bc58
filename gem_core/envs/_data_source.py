"""Load rows from the Hugging Face Hub or its cache, a local file, or a built-in sample.

A table is loaded once per process and shared by all environments that use it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import threading
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.errors import DataError, MissingDependencyError, unknown

Row = dict[str, Any]

SAMPLES = Path(__file__).resolve().parent / "samples"
_FILES = (".jsonl", ".json", ".parquet")
_COMMIT = re.compile(r"@([0-9a-f]{40})/")


class SampleDataWarning(UserWarning):
    """An environment uses its small built-in sample because the real data are not available."""


class Table(NamedTuple):
    """The rows of a data set.

    Attributes:
        row: function that returns row ``i`` as a dict.
        size: number of rows.
        revision: identifies exactly these rows.
        sample: whether this is a built-in sample.
    """

    row: Callable[[int], Row]
    size: int
    revision: str
    sample: bool = False


class Source(NamedTuple):
    """The description of a table; see `gem_core.envs.dataset.DatasetEnv` for the fields."""

    dataset: str
    sample: str
    split: str | None = None
    subset: str | None = None
    revision: str | None = None


def load(source: Source, strict: bool) -> Table:
    """Return the table of a source, from memory if it was loaded before.

    Args:
        source: the description of the table.
        strict: whether data that are not available are an error; otherwise the sample is used
            instead, with a `SampleDataWarning`.

    Raises:
        DataError: the data cannot be read and ``strict`` is true, or the file or the split does not
            exist.
        MissingDependencyError: the package that reads the data is missing and ``strict`` is true.
    """
    if source.dataset == "sample":
        return _remembered(source, lambda: _sample(source.sample))
    if is_file(source.dataset):
        return _remembered(source, lambda: _read_file(source))
    try:
        if not strict and source in _absent:
            raise _absent[source]
        return _remembered(source, lambda: _read_hub(source))
    except (_NotHere, MissingDependencyError) as error:
        if strict:
            raise
        # Decided once, so that all environments of a process use the same data.
        _absent[source] = error
        table = load(Source("sample", source.sample), strict)
        warnings.warn(
            f"Using the built-in sample {source.sample!r} ({table.size} items) instead of "
            f"{source.dataset!r}. {error} With strict=True this is an error; with "
            "dataset='sample' there is no warning.",
            SampleDataWarning,
            stacklevel=2,
        )
        return table


def is_file(dataset: str) -> bool:
    """Return whether a data set is a path: by its suffix, or because the file exists."""
    return dataset.endswith(_FILES) or Path(dataset).is_file()


class _NotHere(DataError):
    """The Hub cannot be reached, and its cache does not have the data."""


_tables: dict[Source, Table] = {}
_absent: dict[Source, Exception] = {}
_lock = threading.RLock()


def _remembered(source: Source, read: Callable[[], Table]) -> Table:
    with _lock:
        table = _tables.get(source)
        if table is None:
            table = read()
            if table.size == 0:
                raise DataError(f"{source.dataset!r} has no rows; name another file or split.")
            _tables[source] = table
    return table


def _sample(name: str) -> Table:
    path = SAMPLES / f"{name}.jsonl"
    if not path.is_file():
        known = sorted(p.stem for p in SAMPLES.glob("*.jsonl"))
        raise unknown("sample", name, known, f"There are {', '.join(known)}.")
    table = _read_jsonl(path)
    digest = table.revision.removeprefix("sha256-")[:12]
    return table._replace(revision=f"sample-{digest}", sample=True)


def _read_file(source: Source) -> Table:
    path = Path(source.dataset).expanduser()
    if not path.is_file():
        raise DataError(
            f"There is no file {source.dataset!r}; give the path of a .jsonl or .parquet file."
        )
    if path.suffix == ".parquet":
        return _read_parquet(path)
    return _read_jsonl(path)


def _read_jsonl(path: Path) -> Table:
    """Map a JSONL file into memory; a row is decoded when it is requested."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    starts = array("Q")
    ends = array("Q")
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        if data[position:end].strip():
            starts.append(position)
            ends.append(end)
        position = end + 1

    def row(index: int) -> Row:
        try:
            item = json.loads(data[starts[index] : ends[index]])
        except ValueError as error:
            raise DataError(f"{path}, row {index + 1}: not JSON ({error}).") from None
        if not isinstance(item, dict):
            raise DataError(f"{path}, row {index + 1}: a row must be a JSON object.")
        return item

    return Table(row, len(starts), f"sha256-{_digest(path)}")


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet files need pyarrow: pip install 'gem-core[data]'."
        ) from error
    table = parquet.read_table(path, memory_map=True)

    def row(index: int) -> Row:
        item: Row = table.slice(index, 1).to_pylist()[0]
        return item

    return Table(row, table.num_rows, f"sha256-{_digest(path)}")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def _read_hub(source: Source) -> Table:
    """Load from the Hub, or from its cache when offline; ``HF_*`` variables are honoured."""
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"Reading {source.dataset!r} needs the package datasets: pip install 'gem-core[data]', "
            "or give the path of a .jsonl file as dataset=."
        ) from error
    try:
        loaded = datasets.load_dataset(source.dataset, source.subset, revision=source.revision)
    except (ConnectionError, TimeoutError) as error:
        raise _NotHere(
            f"It is not in the cache and the Hub cannot be reached ({error!s:.120}). Run once "
            f'with a connection (and without HF_HUB_OFFLINE=1): python -c "import datasets; '
            f"datasets.load_dataset('{source.dataset}')\"; or give the path of a local file as "
            "dataset=."
        ) from error
    except (FileNotFoundError, ValueError) as error:
        raise DataError(f"The Hub has no such data: {error}") from error
    rows = _one_split(loaded, source)

    def row(index: int) -> Row:
        item: Row = rows[index]
        return item

    return Table(row, len(rows), f"{source.dataset}@{_commit(rows, source)}")


def _one_split(loaded: Any, source: Source) -> Any:
    splits = list(loaded)
    if source.split is None and len(splits) == 1:
        return loaded[splits[0]]
    if source.split not in splits:
        raise DataError(
            f"{source.dataset!r} has the splits {', '.join(splits)}: give one of them as split= "
            f"(it is {source.split!r})."
        )
    return loaded[source.split]


def _commit(rows: Any, source: Source) -> str:
    """Return the commit of the rows, from the names of the downloaded files."""
    for name in rows.info.download_checksums or {}:
        commit = _COMMIT.search(name)
        if commit is not None:
            return commit[1]
    return source.revision or f"fingerprint-{rows._fingerprint}"
