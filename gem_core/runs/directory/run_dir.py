"""The run directory: all files of a run, readable without any trainer.

recipe.json      the resolved recipe
run.json         trainer, versions, hardware, git commit, command, environments and their data, the
                 trainer's native configuration
metrics.jsonl    one JSON object per step: {"step": 3, "time": 12.5, "reward/mean": 0.4, ...}
episodes.jsonl.gz  sampled episodes, {"step": 3, "split": "train", **episode}, and "advantages", one
                 per turn, where they are known; see `gem_core.runs.directory.episode_store`
evals.jsonl      evaluations: {"step": 0, "when": "before", ...}
outcomes.jsonl   success of every task before and after training: `gem_core.evaluation.outcomes`
checkpoints/     the trainer's own checkpoints
model/           the trained model, Hugging Face format
sessions.jsonl   the processes that worked on the run, one after another, and their seconds
run.lock         the process that trains this run, or did
stop             exists while a stop is asked for: training saves after its step, and ends
stopped.json     exists if training ended so; the step of its checkpoint
draft.json       metrics of a step under way that is about to be saved: see `RunDir.draft`
trained.json     exists if training is over and the model is complete; only the evaluation is left
result.json      written last; exists only if the run finished
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gem_core.episodes.data import Episode
from gem_core.errors import RecipeError, RunError
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.lock import LOCK_FILE
from gem_core.runs.directory.records import (
    EvalLine,
    EvaluationFile,
    Figures,
    InfoFile,
    RecipeFile,
    ResultFile,
    StepLine,
)
from gem_core.runs.hardware import describe_machine
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.load import stored_recipe, without_idle
from gem_core.runs.recipe.recipe import Recipe

RUN_VARIABLE = "GEM_CORE_RUN"
"""Environment variable in which a launcher passes the run directory to its worker processes."""
STOP_FILE = "stop"
STOPPED_FILE = "stopped.json"
TRAINED_FILE = "trained.json"
DRAFT_FILE = "draft.json"
SESSIONS_FILE = "sessions.jsonl"
IfExists = Literal["error", "resume", "overwrite"]


def current_run() -> RunDir:
    """Return the run directory of this worker process, from `RUN_VARIABLE`.

    Raises:
        RunError: the variable is not set.
    """
    path = os.environ.get(RUN_VARIABLE)
    if not path:
        raise RunError(
            f"{RUN_VARIABLE} is not set, so this process belongs to no run: start the trainer with "
            "`gem-core train`, or with its script in recipes/."
        )
    return RunDir(path)


class RunDir:
    """One run on disk. `create` makes or reopens it; the constructor only reads an existing one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._recipe: Recipe | None = None  # of `create`, which need not read it again

    @classmethod
    def create(
        cls,
        path: str | Path,
        recipe: Recipe,
        trainer: str,
        if_exists: IfExists = "error",
    ) -> RunDir:
        """Make or reopen a run directory and record recipe, versions and hardware.

        Args:
            path: the directory.
            recipe: the resolved recipe.
            trainer: name of the trainer.
            if_exists: what to do with a directory that already holds a run. ``resume`` needs the
                same recipe and trainer.

        Raises:
            RunError: the directory holds a run and ``if_exists`` does not allow it, or folders of
                something else.
        """
        run = cls(path)
        run.require_usable(recipe, trainer, if_exists)
        if run.exists and if_exists == "resume":
            run._repair()
            run._recipe = recipe
            return run
        if run.exists:
            run.clear()
        run.path.mkdir(parents=True, exist_ok=True)
        run._write("run.json", {"trainer": trainer, **describe_machine()})
        run._write("recipe.json", recipe.to_dict())
        run._recipe = recipe
        return run

    def require_usable(self, recipe: Recipe, trainer: str, if_exists: IfExists) -> None:
        """Refuse what `create` refuses; nothing is written or deleted."""
        if not self.exists:
            self._require_own_folder()
        elif if_exists == "error":
            raise RunError(
                f"{self.path} already holds a run. Continue it with --resume, replace it with "
                "--overwrite, or choose another directory."
            )
        elif if_exists == "resume":
            self._check_same(recipe, trainer)
        else:
            self._require_run()

    # -- reading ---------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "recipe.json").exists()

    @property
    def finished(self) -> bool:
        """Whether the run wrote its result."""
        return (self.path / "result.json").exists()

    @property
    def trained(self) -> bool:
        """Whether training is over and its model is saved: a resumed run only evaluates it."""
        return (self.path / TRAINED_FILE).exists() and self.model.exists()

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe of the run.

        Raises:
            RunError: there is none, or its file is damaged.
            RecipeError: it is not a recipe of this version.
        """
        if self._recipe is not None:
            return self._recipe
        data = self._read("recipe.json")
        try:
            return stored_recipe(data)
        except RecipeError as error:
            raise RecipeError(f"{self.path / 'recipe.json'}: {error}") from None

    @property
    def info(self) -> dict[str, Any]:
        """Trainer, versions, hardware and commit.

        Raises:
            RunError: there is no ``run.json``, or it is damaged.
        """
        return self._read("run.json", InfoFile)

    @property
    def result(self) -> dict[str, Any]:
        """The final result.

        Raises:
            RunError: the run did not finish, or its result is damaged.
        """
        data = self._read("result.json")
        kind = EvaluationFile if "kind" in data else ResultFile
        run_files.convert(data, kind, str(self.path / "result.json"))
        return data

    @property
    def checkpoints(self) -> Path:
        """Directory of the trainer's own checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """Directory of the trained model in Hugging Face format."""
        return self.path / "model"

    def metrics(self, at_most: int | None = None) -> list[dict[str, Any]]:
        """Return the metrics of every step; of a step that was repeated, those of the last time.

        Raises:
            RunError: the file is damaged, or larger than ``at_most`` bytes.
        """
        lines = run_files.read_lines(
            self.path / "metrics.jsonl", StepLine, Figures, at_most=at_most
        )
        rows = {row["step"]: row for row in lines}
        return [rows[step] for step in sorted(rows)]

    def evals(self, at_most: int | None = None) -> list[dict[str, Any]]:
        """Return the evaluations in the order they were made; a repeated one counts once.

        Raises:
            RunError: the file is damaged, or larger than ``at_most`` bytes.
        """
        lines = run_files.read_lines(self.path / "evals.jsonl", EvalLine, at_most=at_most)
        return list({(row["step"], row["when"]): row for row in lines}.values())

    def episodes(self, advantages: bool = False) -> Iterator[tuple[dict[str, Any], Episode]]:
        """Yield ``({"step": ..., "split": ...}, episode)`` of every logged episode.

        Of an episode that was played again because its step was repeated, the last one counts.

        Args:
            advantages: where those of its turns were stored, ``"advantages"`` has them.

        Raises:
            RunError: the file is damaged.
        """
        path = store.episodes_file(self.path)
        keys = [_episode_key(k, row) for k, row in enumerate(store.read_records(path))]
        last = {key: number for number, key in enumerate(keys)}
        for number, row in enumerate(store.read_records(path)):
            if number < len(keys) and last[keys[number]] == number:
                tags = {"step": row.pop("step"), "split": row.pop("split")}
                stored = row.pop("advantages", None)
                if advantages and stored is not None:
                    tags["advantages"] = stored
                yield tags, _episode(row, f"{path}: line {number + 1}")

    def lines(self, name: str, *kinds: Any) -> Iterator[dict[str, Any]]:
        """Yield the lines of a file of JSON lines; see `gem_core.runs.directory.files.read_lines`.

        Raises:
            RunError: the file is damaged.
        """
        return run_files.read_lines(self.path / name, *kinds)

    # -- writing --------------------------------------------------------------------------------

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of training step ``step`` (1-based: after that many updates)."""
        row = {"step": step, "time": time.time(), **metrics}
        run_files.append_line(self.path / "metrics.jsonl", row)
        (self.path / DRAFT_FILE).unlink(missing_ok=True)

    def draft(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep what is known of step ``step`` until `log`, where a trainer saves before it logs.

        If the process is killed between the two, the resumed run goes on after this step; its line
        in ``metrics.jsonl`` is then this one.
        """
        self._write(DRAFT_FILE, {"step": step, "time": time.time(), **metrics})

    def read_draft(self) -> dict[str, Any] | None:
        """Return the line that `draft` keeps, ``None`` if the last step with one was logged.

        Raises:
            RunError: the file is damaged.
        """
        path = self.path / DRAFT_FILE
        try:
            line = run_files.read_object(path, StepLine)
        except FileNotFoundError:
            return None
        run_files.convert(line, Figures, str(path))  # as of a line that is read
        return line

    def log_eval(
        self, step: int, when: str, metrics: Mapping[str, Any], engine: str | None = None
    ) -> None:
        """Append an evaluation.

        Args:
            step: the training step after which it is made.
            when: ``before``, ``during`` or ``after``.
            metrics: its figures.
            engine: name and version of what played it; ``None`` = the trainer's own engine.
        """
        named = {} if engine is None else {"engine": engine}
        row = {"step": step, "when": when, **named, **metrics}
        run_files.append_line(self.path / "evals.jsonl", row)

    def log_episodes(
        self,
        step: int,
        episodes: Iterable[Episode],
        split: str = "train",
        advantages: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Append episodes, with the advantage of every turn of each if ``advantages`` has them."""
        rows = []
        for number, episode in enumerate(episodes):
            row = {"step": step, "split": split, **episode.to_dict()}
            if advantages is not None:
                row["advantages"] = list(advantages[number])
            rows.append(row)
        store.append(self.path, rows)

    def publish(self, folder: Path) -> None:
        """Move ``folder``, which is on the same disk, to `model`; an old model is deleted."""
        shutil.rmtree(self.model, ignore_errors=True)
        folder.rename(self.model)

    def keep_model(self, source: Path) -> None:
        """Copy a Hugging Face model from ``source`` and declare it in the recipe's ``dtype``.

        A trainer may save float32 weights but declare bfloat16, to which loading would round them.

        Raises:
            RunError: ``source`` has no model.
        """
        if not (source / "config.json").exists():
            raise RunError(f"{self.info['trainer']} left no model of its last step in {source}.")
        shutil.copytree(source, self.model, dirs_exist_ok=True)
        path = self.model / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["dtype"] = self.recipe.model.dtype
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    def record(self, facts: Mapping[str, Any]) -> None:
        """Add to ``run.json`` what the run is, see `gem_core.runs.resolved.ResolvedRun.record`."""
        info = self.info
        if any(info.get(name) != fact for name, fact in facts.items()):
            self._write("run.json", {**info, **facts})

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result; from then on the run counts as finished."""
        self._write("result.json", dict(result))

    # -- helpers --------------------------------------------------------------------------------

    def _check_same(self, recipe: Recipe, trainer: str) -> None:
        if self.info["trainer"] != trainer:
            raise RunError(f"{self.path} is a run of {self.info['trainer']!r}, not {trainer!r}.")
        old = _flat(self.recipe)  # keys that were added to the schema since have their defaults
        new = _flat(recipe)
        changed = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        if changed:
            raise RunError(
                f"{self.path} was started with another recipe (it differs in {changed}): resume "
                "it with the same recipe, or start a new run."
            )

    def mark_trained(self) -> None:
        """Record that training is over and that the model is complete."""
        self._write(TRAINED_FILE, {"time": time.time()})

    def _repair(self) -> None:
        """Remove the incomplete ends of files that a killed process left, before more is added."""
        store.repair(self.path)
        for path in sorted(self.path.glob("*.jsonl")):
            with run_files.open_file(path) as file:
                content = file.read()
            whole, newline, rest = content.rpartition(b"\n")
            if not rest:
                continue
            try:
                json.loads(rest)
            except ValueError:
                os.truncate(path, len(whole + newline))
            else:  # only the end of the line is missing
                with os.fdopen(run_files.open_to_append(path), "ab") as file:
                    file.write(b"\n")
        draft = self.read_draft()
        if draft is not None and draft["step"] not in {row["step"] for row in self.metrics()}:
            run_files.append_line(self.path / "metrics.jsonl", draft)
        (self.path / DRAFT_FILE).unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete everything in the folder but the lock, which this process may hold.

        Raises:
            RunError: it is not the folder of a run; nothing is deleted.
        """
        self._require_run()
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK_FILE:
                path.unlink()

    def _require_run(self) -> None:
        try:
            run_files.read_object(self.path / "recipe.json", RecipeFile)
            run_files.read_object(self.path / "run.json", InfoFile)
        except (FileNotFoundError, RunError) as error:
            why = "it has no run.json" if isinstance(error, FileNotFoundError) else str(error)
            raise RunError(
                f"{self.path} is not deleted, as it may not be a run ({why}): delete it yourself, "
                "or name another folder."
            ) from None

    def _require_own_folder(self) -> None:
        """Check that a new run gets no folder in which something else is: it could be deleted."""
        here = self.path.iterdir() if self.path.is_dir() else ()
        others = sorted(p.name for p in here if p.is_dir())
        if others:
            raise RunError(
                f"{self.path} has folders that are not of a run ({', '.join(others[:3])}): a run "
                "needs a folder of its own; name a new one."
            )

    def _write(self, name: str, data: Any) -> None:
        run_files.write_object(self.path / name, data)

    def _read(self, name: str, kind: type[Any] | None = None) -> dict[str, Any]:
        try:
            return run_files.read_object(self.path / name, kind)
        except FileNotFoundError:
            raise RunError(
                f"{self.path} has no {name}: it is not a run directory, or the run did not finish."
            ) from None


def continue_from(recipe: Recipe, run: RunDir) -> Recipe:
    """Return ``recipe`` started where ``run`` ended: from its model, with the tasks that follow.

    Raises:
        RunError: there is no such run, or it has no model.
    """
    from msgspec.structs import replace

    if not run.exists:
        raise RunError(f"{run.path} is not a run directory (it has no recipe.json).")
    if not (run.model / "config.json").exists():
        raise RunError(f"{run.path} has no model yet: finish it with gem-core train --resume.")
    before = run.recipe.train
    continued = replace(
        recipe,
        model=replace(recipe.model, path=str(run.model.resolve()), revision=None),
        train=replace(recipe.train, start=before.start + before.steps),
    )
    return without_idle(continued)


def _flat(recipe: Recipe) -> dict[str, str]:
    """Return the values of a recipe by dotted key, as JSON; those without effect do not count."""
    values = flatten(without_idle(recipe).to_dict())
    return {key: json.dumps(value, sort_keys=True) for key, value in values.items()}


def _episode(row: dict[str, Any], where: str) -> Episode:
    try:
        return Episode.from_dict(row)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{where} is no episode: {type(error).__name__}: {error}.") from None


def _episode_key(number: int, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a logged episode; one without an index is identified by its line."""
    if row["index"] < 0:
        return ("line", number)
    return (row["step"], row["split"], row["index"])
