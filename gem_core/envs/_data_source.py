"""Load rows from the Hugging Face Hub or its cache, a local file, or a built-in sample.

A table is loaded once per process and shared by all environments that use it. `gem_core.envs._hub`
does what concerns the Hub.
"""

from __future__ import annotations

import json
import mmap
import threading
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.env.files import file_revision
from gem_core.envs import _hub
from gem_core.envs._hub import DataUnavailableError
from gem_core.errors import DataError, MissingDependencyError, unknown

Row = dict[str, Any]

SAMPLES = Path(__file__).resolve().parent / "samples"
_FILES = (".jsonl", ".json", ".parquet")


class SampleDataWarning(UserWarning):
    """An environment uses its small built-in sample because the real data are not available."""


def _row_number(index: int) -> str:
    return f"row {index + 1}"


class DataTable(NamedTuple):
    """The rows of a data set.

    Attributes:
        row: function that returns row ``i`` as a dict.
        size: number of rows.
        revision: identifies exactly these rows.
        sample: whether this is a built-in sample.
        commit: commit of a data set of the Hub, if it is known.
        place: function that says where row ``i`` is, for messages.
    """

    row: Callable[[int], Row]
    size: int
    revision: str
    sample: bool = False
    commit: str | None = None
    place: Callable[[int], str] = _row_number


class Source(NamedTuple):
    """The description of a table; see `gem_core.envs.dataset.DatasetEnv` for the fields."""

    dataset: str
    sample: str
    split: str | None = None
    subset: str | None = None
    revision: str | None = None


class _Rules(NamedTuple):
    """What holds for all loading; see `strict_data`."""

    strict: bool = False
    commits: Mapping[str, str] = {}


_rules: ContextVar[_Rules] = ContextVar("_rules", default=_Rules())  # noqa: B039 - immutable


@contextmanager
def strict_data(commits: Mapping[str, str] | None = None) -> Iterator[None]:
    """Inside the block, data that are not available are an error, for every environment.

    Args:
        commits: data set of the Hub -> the commit to load, where an environment asks for none.
    """
    token = _rules.set(_Rules(True, commits or {}))
    try:
        yield
    finally:
        _rules.reset(token)


def is_strict(strict: bool) -> bool:
    """Return whether data that are not available are an error: by parameter, or in a block."""
    return strict or _rules.get().strict


def load(source: Source, strict: bool) -> DataTable:
    """Return the table of a source, from memory if it was loaded before.

    Args:
        source: the description of the table.
        strict: whether data that are not available are an error; otherwise the sample is used
            instead, with a `SampleDataWarning`. Inside `strict_data` it is always true.

    Raises:
        DataError: the data cannot be read and ``strict`` is true, or the file or the split does not
            exist.
        MissingDependencyError: the package that reads the data is missing and ``strict`` is true.
    """
    if source.dataset == "sample":
        return _remember(source, lambda: _sample(source.sample))
    if is_file(source.dataset):
        return _remember(source, lambda: _read_file(source))
    strict = is_strict(strict)
    source = _at_agreed_commit(source)
    try:
        if not strict and source in _absent:
            raise _absent[source]
        table = _remember(source, lambda: _read_hub(source))
    except DataUnavailableError as error:
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


def _at_agreed_commit(source: Source) -> Source:
    """Return the source at the commit that `strict_data` states, unless it has one already."""
    commit = _rules.get().commits.get(source.dataset)
    if commit is None or _hub.is_commit(source.revision):
        return source
    return source._replace(revision=commit)


def is_file(dataset: str) -> bool:
    """Return whether a data set is a path: by its suffix, or because the file exists."""
    return dataset.endswith(_FILES) or Path(dataset).is_file()


_tables: dict[Source, DataTable] = {}
_absent: dict[Source, DataUnavailableError] = {}
_lock = threading.RLock()


def _remember(source: Source, read: Callable[[], DataTable]) -> DataTable:
    with _lock:
        table = _tables.get(source)
        if table is None:
            table = read()
            if table.size == 0:
                raise DataError(f"{source.dataset!r} has no rows; name another file or split.")
            _tables[source] = table
            if table.commit is not None:
                _tables[source._replace(revision=table.commit)] = table
    return table


def _sample(name: str) -> DataTable:
    path = SAMPLES / f"{name}.jsonl"
    if not path.is_file():
        known = sorted(p.stem for p in SAMPLES.glob("*.jsonl"))
        raise unknown("sample", name, known, f"There are {', '.join(known)}.")
    table = _read_jsonl(path)
    digest = table.revision.removeprefix("sha256-")[:12]
    return table._replace(revision=f"sample-{digest}", sample=True)


def _read_file(source: Source) -> DataTable:
    path = Path(source.dataset).expanduser()
    if not path.is_file():
        raise DataError(
            f"There is no file {source.dataset!r}; give the path of a .jsonl or .parquet file."
        )
    if path.suffix == ".parquet":
        return _read_parquet(path)
    return _read_jsonl(path)


def _read_jsonl(path: Path) -> DataTable:
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
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, {place(index)}: not JSON ({error}).") from None
        if not isinstance(item, dict):
            raise DataError(f"{path}, {place(index)}: a row must be a JSON object.")
        return item

    def place(index: int) -> str:
        return f"line {data[: starts[index]].count(newline) + 1}"

    newline = b"\n"
    return DataTable(row, len(starts), file_revision(path), place=place)


def _read_parquet(path: Path) -> DataTable:
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

    return DataTable(row, table.num_rows, file_revision(path))


def _read_hub(source: Source) -> DataTable:
    rows, commit = _hub.read(source.dataset, source.subset, source.split, source.revision)

    def row(index: int) -> Row:
        item: Row = rows[index]
        return item

    version = commit or f"fingerprint-{rows._fingerprint}"
    return DataTable(row, len(rows), f"{source.dataset}@{version}", commit=commit)
