"""The directory of an evaluation: a run directory with two more files.

eval.json        what is evaluated: model, endpoint, environments, tasks, samples
items.jsonl      one line per item that is over; an item without a line is still to be played
episodes.jsonl.gz  the episodes, as in every run; of one that was played twice the last counts

An episode is written before the line of its item. A process that is killed in between leaves an
episode without a line; the item is then played again. Every line is handed to the system at once,
so that a killed process loses none; the disk gets them once a second, which bounds what a power cut
costs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gem_core.episodes.data import Episode
from gem_core.errors import RunError
from gem_core.evaluation.rows import ItemRow
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import IfExists, RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.redaction import redact

ITEMS = "items.jsonl"
PLAN = "eval.json"
TRAINER = "eval"
"""In the place of the trainer's name."""
_SYNC_S = 1.0


class EvalDir:
    """An evaluation on disk."""

    def __init__(self, path: str | Path) -> None:
        self.run = RunDir(path)
        self.path = self.run.path

    @property
    def plan(self) -> dict[str, Any]:
        """What is evaluated.

        Raises:
            RunError: there is no evaluation, or its plan is damaged.
        """
        try:
            return run_files.read_object(self.path / PLAN)
        except FileNotFoundError:
            raise RunError(
                f"{self.path} has no {PLAN}: it is not the directory of an evaluation; "
                "`gem-core eval ... --out DIR` makes one."
            ) from None

    @property
    def started(self) -> float:
        """When it was begun, in seconds since the epoch.

        Raises:
            RunError: that is not recorded.
        """
        started = self.run.info.get("started")
        if started is None:
            raise RunError(f"{self.path / 'run.json'} is damaged: it has no 'started'.")
        return float(started)

    def require(self) -> None:
        """Check that there is an evaluation.

        Raises:
            RunError: there is none.
        """
        _ = self.plan

    def rows(self) -> list[ItemRow]:
        """Return the items that are over, each once; of one that was repeated the last row.

        Raises:
            RunError: a line is damaged, other than an incomplete last one.
        """
        rows: dict[int, ItemRow] = {}
        for line in self.run.lines(ITEMS):
            try:
                row = msgspec.convert(line, ItemRow)
            except msgspec.ValidationError as error:
                raise RunError(f"{self.path / ITEMS} has a line that is no item: {error}") from None
            rows[row.item] = row
        return [rows[item] for item in sorted(rows)]

    @contextmanager
    def open(self, recipe: Recipe, plan: dict[str, Any], if_exists: IfExists) -> Iterator[ItemLog]:
        """Lock the directory, make or reopen it, and yield what writes its items.

        Raises:
            RunError: another process uses it, or it holds another evaluation.
        """
        with exclusive(self.path):
            if if_exists == "resume" and self.run.exists:
                self._check_same(plan)
            RunDir.create(self.path, recipe, TRAINER, if_exists)
            run_files.write_object(self.path / PLAN, plan)
            with ItemLog(self.run) as log:
                yield log

    def _check_same(self, plan: dict[str, Any]) -> None:
        if not (self.path / PLAN).exists() and not (self.path / ITEMS).exists():
            return  # killed while it was made
        stored = redact(self.plan)  # older versions kept secrets
        plain = redact(json.loads(json.dumps(plan)))
        changed = sorted(k for k in stored.keys() | plain.keys() if stored.get(k) != plain.get(k))
        if changed:
            raise RunError(
                f"{self.path} is another evaluation (it differs in {', '.join(changed)}): resume "
                "it as it was started, replace it with --overwrite, or choose another --out."
            )


class ItemLog:
    """Appends items and their episodes."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._file = os.fdopen(run_files.open_to_append(run.path / ITEMS), "ab", buffering=0)
        self._synced = time.monotonic()

    def __enter__(self) -> ItemLog:
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def add(self, row: ItemRow, episode: Episode | None) -> None:
        """Write an item that is over."""
        if episode is not None:
            self._run.log_episodes(0, [episode], "eval")
        line = msgspec.json.encode(row) + b"\n"
        written = self._file.write(line)
        if written != len(line):
            raise RunError(f"{self._run.path / ITEMS} cannot be written: is the disk full?")
        if time.monotonic() - self._synced > _SYNC_S:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()
