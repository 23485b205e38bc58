"""The runs below the given directories, and what their files say. Nothing is written.

A run may come from somebody else, or be damaged. What cannot be read counts as absent, and the run
says why; the other runs are not touched by it. Nothing outside a run's folder is read for it: links
are not followed, and paths that its files name are not opened.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gem_core.errors import GemError, RunError
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.files import open_file, read_object
from gem_core.runs.directory.lock import LOCK_FILE
from gem_core.runs.directory.records import FailedFile, Number, RecipeFile
from gem_core.runs.directory.run_dir import STOPPED_FILE, RunDir
from gem_core.runs.redaction import is_secret_name, redact, redact_command

FOLLOWED = (
    "recipe.json",
    "run.json",
    "metrics.jsonl",
    "evals.jsonl",
    store.FILE,
    store.PLAIN_FILE,
    "result.json",
    "failed.json",
)
"""Files whose change means that the run has something new."""
MARKS = ("recipe.json", "run.json")
"""A folder that has one of them is a run; one that lacks the other is damaged."""
LINES_BYTES = 256 << 20
"""Bytes of a file of metrics or evaluations that are shown, at most."""
_SKIPPED = {"checkpoints", "model", "__pycache__"}
_DEPTH = 6
T = TypeVar("T")


class FoundRuns(NamedTuple):
    """Runs by name, and lines that say which folders were left out."""

    runs: list[tuple[str, RunDir]]
    left_out: list[str]


def find_runs(paths: Sequence[Path]) -> FoundRuns:
    """Return the runs in ``paths`` with short names, in the order of their names.

    Args:
        paths: run directories, or directories that contain runs at any depth (grids); they may be
            links. Links below them are not followed.

    Raises:
        RunError: a path does not exist.
    """
    runs: dict[Path, str] = {}
    left_out: list[str] = []
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is not a directory; name run directories or grids of them.")
        for folder in _run_folders(path, _DEPTH, path.resolve(), left_out):
            inside = folder.relative_to(path).as_posix()
            short = path.resolve().name
            name = short if inside == "." else inside if len(paths) == 1 else f"{short}/{inside}"
            runs.setdefault(folder.resolve(), name)
    return FoundRuns([(name, RunDir(folder)) for folder, name in runs.items()], left_out)


def _run_folders(folder: Path, depth: int, root: Path, left_out: list[str]) -> Iterator[Path]:
    if any(os.path.lexists(folder / mark) for mark in MARKS):
        yield folder
        return
    if depth == 0:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        left_out.append(f"{folder} cannot be read: {error.strerror}.")
        return
    for entry in entries:
        if entry.name in _SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _run_folders(Path(entry.path), depth - 1, root, left_out)
        elif entry.is_symlink() and os.path.isdir(entry.path):
            target = Path(os.path.realpath(entry.path))
            if not target.is_relative_to(root):
                left_out.append(f"{entry.path} is a link to a folder elsewhere: name that folder.")


def signature(run: RunDir) -> str:
    """Return a text that changes when the run has something new."""
    parts = []
    for name in FOLLOWED:
        try:
            status = (run.path / name).lstat()
        except OSError:
            parts.append("-")
        else:
            parts.append(f"{status.st_size}.{status.st_mtime_ns}")
    return ":".join(parts)


# -- what the files say ----------------------------------------------------------------------------


class _Algorithm(msgspec.Struct, frozen=True):
    estimator: str | None = None


class _Train(msgspec.Struct, frozen=True):
    steps: Number | None = None


class _Recipe(RecipeFile):
    """What is shown of a recipe."""

    algorithm: _Algorithm = _Algorithm()  # type: ignore[assignment]
    train: _Train = _Train()  # type: ignore[assignment]


class Contents(NamedTuple):
    """The files of a run.

    Attributes:
        recipe: of ``recipe.json``; empty where it cannot be read.
        info: of ``run.json``.
        result: of ``result.json``; ``None`` where there is none.
        failed: of ``failed.json``.
        metrics: the lines of ``metrics.jsonl``.
        evals: the lines of ``evals.jsonl``.
        episode_bytes: size of the file of episodes.
        damage: what cannot be read, a reason per file.
    """

    recipe: dict[str, Any]
    info: dict[str, Any]
    result: dict[str, Any] | None
    failed: dict[str, Any] | None
    metrics: list[dict[str, Any]]
    evals: list[dict[str, Any]]
    episode_bytes: int
    damage: list[str]


def read_run(run: RunDir) -> Contents:
    """Read the files of a run; a file that cannot be read counts as absent, with a reason."""
    damage: list[str] = []

    def attempt(read: Callable[[], T], absent: T) -> T:
        try:
            return read()
        except FileNotFoundError:
            return absent
        except GemError as error:
            damage.append(
                str(error).replace(f"{run.path}{os.sep}", "").replace(str(run.path), "it")
            )
            return absent

    return Contents(
        attempt(lambda: _read_required(run, "recipe.json", _Recipe), {}),
        attempt(lambda: run.info, {}),
        attempt(lambda: run.result if os.path.lexists(run.path / "result.json") else None, None),
        attempt(lambda: read_object(run.path / "failed.json", FailedFile), None),
        attempt(lambda: run.metrics(LINES_BYTES), []),
        attempt(lambda: run.evals(LINES_BYTES), []),
        attempt(lambda: _episode_bytes(store.episodes_file(run.path)), 0),
        damage,
    )


def _read_required(run: RunDir, name: str, kind: type[Any]) -> dict[str, Any]:
    try:
        return read_object(run.path / name, kind)
    except FileNotFoundError:
        raise RunError(f"It has no {name}.") from None


def _episode_bytes(path: Path) -> int:
    """Return the size of a file of episodes.

    Raises:
        RunError: it is none.
    """
    with open_file(path) as file:
        if path.name == store.FILE and not store.begins_with_block(file):
            raise RunError(f"{path} is not a file of episodes as gem-core writes them.")
        return os.fstat(file.fileno()).st_size


def summary(name: str, contents: Contents) -> dict[str, Any]:
    """Return what the list of runs shows of one."""
    recipe, result = contents.recipe, contents.result or {}
    is_evaluation = "kind" in result
    seconds = result.get("seconds")
    last = contents.metrics[-1] if contents.metrics else {}
    return {
        "name": name,
        "recipe": recipe.get("name"),
        "trainer": contents.info.get("trainer"),
        "estimator": None if is_evaluation else recipe.get("algorithm", {}).get("estimator"),
        "seed": recipe.get("seed"),
        "step": last.get("step", 0),
        "steps": None if is_evaluation else recipe.get("train", {}).get("steps"),
        "before": result.get("before") or _last(contents.evals, "before"),
        "after": result.get("after") or _last(contents.evals, "after"),
        "evaluated": result.get("metrics"),
        "now": _number(last.get("success/mean")),
        "seconds": seconds.get("train") if isinstance(seconds, dict) else seconds,
        "started": contents.info.get("started"),
        "episode_bytes": contents.episode_bytes,
        "damage": contents.damage,
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
    try:
        inode = str(path.lstat().st_ino)
    except OSError:
        return False
    if not locks.exists():
        return False
    lines = locks.read_text(encoding="ascii").splitlines()
    return any(inode == part.rsplit(":", 1)[-1] for line in lines for part in line.split()[5:6])


def details(contents: Contents) -> dict[str, Any]:
    """Return recipe, versions, evaluations and result of a run, without secrets."""
    info = contents.info
    if info.get("command"):
        info = {**info, "command": redact_command(info["command"])}
    return {
        "recipe_table": redact(contents.recipe, is_secret_name) or None,
        "info": redact(info, is_secret_name) or None,
        "evals": contents.evals or _by_environment(contents.result or {}),
        "result": redact(contents.result, is_secret_name),
        "failed": redact(contents.failed, is_secret_name),
    }


def _by_environment(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of an evaluation, a row per environment."""
    if "kind" not in result:
        return []
    return [{"when": row["id"], "step": None, **row["metrics"]} for row in result["environments"]]


def curves(contents: Contents, metrics: Iterable[str]) -> dict[str, dict[str, list[list[float]]]]:
    """Return ``[step, value]`` of each metric in the training steps, and in the evaluations.

    A value that is no number, or not a finite one, is left out.
    """
    rows = {"train": contents.metrics, "eval": contents.evals}
    return {
        metric: {
            part: [
                [row["step"], row[metric]] for row in its if _number(row.get(metric)) is not None
            ]
            for part, its in rows.items()
        }
        for metric in metrics
    }


def metric_names(contents: Contents) -> set[str]:
    """Return the names of what the run measured in training."""
    rows = contents.metrics
    return {key for row in (*rows[:1], *rows[-1:]) for key in row} - {"step", "time"}


def _number(value: Any) -> float | None:
    """Return a finite number as it is, and ``None`` for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value if -1e300 < value < 1e300 and not math.isnan(value) else None


def _last(evals: list[dict[str, Any]], when: str) -> dict[str, Any] | None:
    rows = [row for row in evals if row["when"] == when]
    return rows[-1] if rows else None
