"""The runs below the given directories, and what their files say. Nothing is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import RunError
from gem_core.training import episode_store as store
from gem_core.training.run_lock import LOCK_FILE
from gem_core.training.runs import STOPPED_FILE, RunDir

FOLLOWED = (
    "metrics.jsonl",
    "evals.jsonl",
    store.FILE,
    store.PLAIN_FILE,
    "result.json",
    "failed.json",
)
"""Files whose change means that the run has something new."""
_SKIPPED = {"checkpoints", "model", "__pycache__"}
_DEPTH = 6


def find_runs(paths: Sequence[Path]) -> list[tuple[str, RunDir]]:
    """Return the runs in ``paths`` with short names, in the order of their names.

    Args:
        paths: run directories, or directories that contain runs at any depth (grids).

    Raises:
        RunError: a path does not exist.
    """
    runs: dict[Path, str] = {}
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is not a directory; name run directories or grids of them.")
        for folder in _run_folders(path, _DEPTH):
            inside = folder.relative_to(path).as_posix()
            short = path.resolve().name
            name = short if inside == "." else inside if len(paths) == 1 else f"{short}/{inside}"
            runs.setdefault(folder.resolve(), name)
    return [(name, RunDir(folder)) for folder, name in runs.items()]


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "recipe.json").is_file():
        yield folder
        return
    if depth == 0:
        return
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
            yield from _run_folders(Path(entry.path), depth - 1)


def signature(run: RunDir) -> str:
    """Return a text that changes when the run has something new."""
    parts = []
    for name in FOLLOWED:
        try:
            status = (run.path / name).stat()
        except FileNotFoundError:
            parts.append("-")
        else:
            parts.append(f"{status.st_size}.{status.st_mtime_ns}")
    return ":".join(parts)


def summary(name: str, run: RunDir) -> dict[str, Any]:
    """Return what the list of runs shows of one."""
    recipe = read_json(run.path / "recipe.json") or {}
    info = read_json(run.path / "run.json") or {}
    result = read_json(run.path / "result.json") or {}
    evals = run.evals()
    rows = run.metrics()
    last = rows[-1] if rows else {}
    train = recipe.get("train", {})
    episodes = store.episodes_file(run.path)
    return {
        "name": name,
        "recipe": recipe.get("name"),
        "trainer": info.get("trainer"),
        "estimator": recipe.get("algorithm", {}).get("estimator"),
        "seed": recipe.get("seed"),
        "status": status_of(run),
        "step": last.get("step", 0),
        "steps": train.get("steps"),
        "before": result.get("before") or _last(evals, "before"),
        "after": result.get("after") or _last(evals, "after"),
        "now": last.get("success/mean"),
        "seconds": result.get("seconds", {}).get("train"),
        "started": info.get("started"),
        "episode_bytes": episodes.stat().st_size if episodes.exists() else 0,
    }


def status_of(run: RunDir) -> str:
    """Return ``finished``, ``failed``, ``running``, ``stopped`` or ``unfinished``.

    ``running`` is a run whose lock a process of this machine holds.
    """
    if run.finished:
        return "finished"
    if _is_locked(run.path / LOCK_FILE):
        return "running"
    if (run.path / "failed.json").exists():
        return "failed"
    return "stopped" if (run.path / STOPPED_FILE).exists() else "unfinished"


def _is_locked(path: Path) -> bool:
    """Whether the system lists a lock of the file; taking the lock could stop a run's start."""
    locks = Path("/proc/locks")
    if not path.exists() or not locks.exists():
        return False
    inode = str(path.stat().st_ino)
    lines = locks.read_text(encoding="ascii").splitlines()
    return any(inode == part.rsplit(":", 1)[-1] for line in lines for part in line.split()[5:6])


def details(run: RunDir) -> dict[str, Any]:
    """Return recipe, versions, evaluations and result of a run."""
    return {
        "recipe_table": read_json(run.path / "recipe.json"),
        "info": read_json(run.path / "run.json"),
        "evals": run.evals(),
        "result": read_json(run.path / "result.json"),
        "failed": read_json(run.path / "failed.json"),
    }


def curves(run: RunDir, metrics: Iterable[str]) -> dict[str, dict[str, list[list[float]]]]:
    """Return ``[step, value]`` of each metric in the training steps, and in the evaluations."""
    rows = {"train": run.metrics(), "eval": run.evals()}
    return {
        metric: {
            part: [[row["step"], row[metric]] for row in its if _is_number(row.get(metric))]
            for part, its in rows.items()
        }
        for metric in metrics
    }


def metric_names(run: RunDir) -> set[str]:
    """Return the names of what the run measured in training."""
    rows = run.metrics()
    return {key for row in (*rows[:1], *rows[-1:]) for key in row} - {"step", "time"}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON of a file; ``None`` where there is none."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return data


def _last(evals: list[dict[str, Any]], when: str) -> dict[str, Any] | None:
    rows = [row for row in evals if row["when"] == when]
    return rows[-1] if rows else None
