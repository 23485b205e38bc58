"""``gem-core export``: the sampled episodes of runs as one Parquet file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_export.episode import ExportedEpisode
from gem_export.parquet import write_parquet


def export(arguments: argparse.Namespace) -> int:
    """Write the file; print how many episodes it has, and its name.

    Raises:
        GemError: a run is none, two have the same name, no episode is there, the file exists or
            cannot be written.
    """
    runs = {run.path.resolve().name: run for run in map(RunDir, arguments.runs)}
    names = Counter(path.resolve().name for path in arguments.runs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise GemError(f"Two of the runs are named {twice[0]!r}: export each into its own file.")
    for run in runs.values():
        if not run.exists:
            raise GemError(f"{run.path} is not a run directory (it has no recipe.json).")
    if arguments.to.exists() and not arguments.overwrite:
        raise GemError(f"{arguments.to} exists: name another file, or add --overwrite.")
    number = write_parquet(arguments.to, _episodes(runs, arguments.split))
    print(f"{arguments.to}: {number} episodes")
    return 0


def _episodes(runs: dict[str, RunDir], split: str | None) -> Iterator[ExportedEpisode]:
    for name, run in runs.items():
        trainer = str(run.info["trainer"])
        for tags, episode in run.episodes(advantages=True):
            if split in (None, tags["split"]):
                yield ExportedEpisode(
                    name, trainer, tags["step"], tags["split"], episode, tags.get("advantages")
                )
