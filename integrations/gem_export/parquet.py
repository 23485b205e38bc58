"""A Parquet file of episodes, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gem_core.errors import GemError, MissingDependencyError, RunError, how_to_install
from gem_export.episode import ExportedEpisode

ROWS = 256
"""Episodes of a row group: so many are in memory at a time."""


def write_parquet(path: Path, episodes: Iterable[ExportedEpisode]) -> int:
    """Write episodes, and return how many there were.

    A file of the name is replaced when the new one is whole.

    Raises:
        MissingDependencyError: pyarrow is missing.
        RunError: there is no episode, or one has a number or a text that Parquet cannot hold.
        OSError: the file cannot be written.
    """
    parquet = _pyarrow_parquet()
    from gem_export.table import SCHEMA, to_row

    partial = path.with_name(f"{path.name}.partial")
    number = 0
    rows = (to_row(one) for one in episodes)
    try:
        with (
            partial.open("wb") as file,
            parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
        ):
            while batch := list(islice(rows, ROWS)):
                writer.write_table(_table(batch))
                number += len(batch)
        if number == 0:
            raise RunError("The runs have no such episodes: train with train.log_episodes above 0.")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return number


def read_parquet(path: Path) -> Iterator[ExportedEpisode]:
    """Yield the episodes of a file that `write_parquet` wrote.

    Raises:
        MissingDependencyError: pyarrow is missing.
        GemError: the file has other columns, or is no Parquet file.
    """
    parquet = _pyarrow_parquet()
    import pyarrow as pa

    from gem_export.table import SCHEMA, from_row

    try:
        file = parquet.ParquetFile(path)
    except pa.ArrowInvalid:
        raise GemError(f"{path} is no Parquet file: `gem-core export` writes one.") from None
    with file:
        if not file.schema_arrow.equals(SCHEMA):
            raise GemError(f"{path} has not the columns of `gem-core export`.")
        for batch in file.iter_batches(ROWS):
            yield from map(from_row, batch.to_pylist())


def _table(rows: list[dict[str, Any]]) -> Any:
    """Return a table of rows; what does not fit its column is an error that names the episode."""
    import pyarrow as pa

    from gem_export.table import SCHEMA

    try:
        return pa.Table.from_pylist(rows, SCHEMA)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        if len(rows) > 1:  # find the episode
            for row in rows:
                _table([row])
        row = rows[0]
        raise RunError(
            f"An episode of {row['run']} (step {row['step']}, index {row['index']}) does not fit "
            f"into Parquet: {' '.join(str(error).split())}. Its run has it in episodes.jsonl.gz."
        ) from None


def _pyarrow_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError(
            f"gem-core export needs pyarrow: {how_to_install('parquet')}."
        ) from None
    return parquet
