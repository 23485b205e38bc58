"""One evaluation from its plan to its result, in a directory that can be resumed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.evaluation.contenders import Contender
from gem_core.evaluation.folder import EvalDir, ItemLog
from gem_core.evaluation.items import Item, all_items
from gem_core.evaluation.plan import EvaluationSubject
from gem_core.evaluation.rows import ItemRow
from gem_core.evaluation.summary import summarise_rows
from gem_core.runs.directory.run_dir import IfExists, RunDir
from gem_core.runs.environments.description import describe_environments, in_run
from gem_core.runs.hardware import made_with
from gem_core.runs.recipe.recipe import Recipe

RESULT_FORMAT = 1
"""Increase it when the meaning of a field of the result changes."""
Advance: TypeAlias = Callable[[ItemRow], None]
"""Is told of each item that is over."""
Progress: TypeAlias = Callable[[int, int], AbstractContextManager[Advance]]
"""Shows how far it is: from the number of items that are over, and of all, what is told."""


def run_evaluation(
    subject: EvaluationSubject,
    counts: Sequence[int],
    contender: Contender,
    out: Path,
    *,
    samples: int = 1,
    if_exists: IfExists = "error",
    retry_errors: bool = False,
    progress: Progress,
) -> dict[str, Any]:
    """Play every item that is not over; write the result and return it, as in ``result.json``.

    ``counts`` has the number of tasks of each environment, each played ``samples`` times.
    ``resume`` continues an evaluation; with ``retry_errors`` its items with an error are played
    again.

    Raises:
        GemError: it cannot be begun, or not continued; what is over by then is kept.
    """
    if samples < 1:
        raise GemError("-n is the number of samples of each task, at least 1.")
    recipe = subject.recipe
    folder = EvalDir(out)
    resumed = if_exists == "resume" and folder.run.exists
    recorded = folder.run if resumed else subject.run
    environments = describe_environments(recipe, recorded)
    plan = {"model": contender.describe(), "tasks": list(counts), "samples": samples}
    with folder.open(recipe, plan, if_exists) as log, in_run(folder.run, environments):
        began = time.time()
        done = {row.item for row in folder.rows() if not (retry_errors and row.error)}
        every = sum(counts) * samples
        with progress(len(done), every) as advance:
            items = (item for item in all_items(counts, samples) if item.index not in done)
            _play(recipe, items, contender, log, advance, left=every - len(done))
        result = _result(folder, contender, samples, counts, time.time() - began)
        folder.run.finish(result)
    return result


def _play(
    recipe: Recipe,
    items: Iterable[Item],
    contender: Contender,
    log: ItemLog,
    advance: Advance,
    *,
    left: int,
) -> None:
    def record(row: ItemRow, episode: Episode | None) -> None:
        log.add(row, episode)
        advance(row)

    if left:
        contender.play(recipe, items, record)


def _result(
    folder: EvalDir, contender: Contender, samples: int, counts: Sequence[int], seconds: float
) -> dict[str, Any]:
    rows = folder.rows()
    expected = sum(counts) * samples
    if [row.item for row in rows] != list(range(expected)):
        raise GemError(f"{folder.path} has {len(rows)} of {expected} items: resume it.")
    _require_results(rows)
    return {
        "format": RESULT_FORMAT,
        "kind": "evaluation",
        "name": folder.run.recipe.name,
        "model": contender.name,
        **result_of(rows, samples),
        "seconds": round(seconds, 2),
        **provenance(folder.run),
    }


def _require_results(rows: Sequence[ItemRow]) -> None:
    """Check that some item has a result: a score of nothing would look like a bad model.

    Raises:
        GemError: none has; the message has the most frequent reason.
    """
    reasons = Counter(row.error.message for row in rows if row.error is not None)
    if rows and len(rows) == sum(reasons.values()):
        reason, count = reasons.most_common(1)[0]
        raise GemError(
            f"None of the {len(rows)} items has a result; most often ({count}x): {reason}. "
            "Repair that, and play them again with --resume --retry-errors."
        )


def result_of(rows: Sequence[ItemRow], samples: int) -> dict[str, Any]:
    """Return the part of a result that comes from the items."""
    return {"samples": samples, "items": len(rows), **summarise_rows(rows, samples)}


def provenance(run: RunDir) -> dict[str, Any]:
    """Return where a result was made."""
    info = run.info
    return {"data": info.get("environments"), **made_with(info)}
