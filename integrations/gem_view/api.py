"""What the page can ask: a function per question, from text options to plain data.

The options come from the address, so they are untrusted. A run is named by its number in the list,
never by a path.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gem_core.errors import RunError
from gem_core.runs.cache import cache_root
from gem_core.runs.directory.episode_store import episodes_file
from gem_core.runs.directory.run_dir import RunDir
from gem_view import runs as files
from gem_view.divergence import find_divergence
from gem_view.index import BATCH_BYTES, NO_EPISODES, TEXTS, EpisodeIndex
from gem_view.pieces import Pieces, find_tokenizer, read_pieces
from gem_view.query import Queries
from gem_view.records import require_shown

Options = Mapping[str, str]
DEFAULT_METRIC = "success/mean"
MAX_COMPARED = 6
_RESCAN_SECONDS = 5.0


class Viewer:
    """The runs that are shown, their indexes, and the answers to the page's questions."""

    def __init__(self, paths: Sequence[Path], allow_none: bool = False) -> None:
        """Find the runs in ``paths``.

        Raises:
            RunError: a path does not exist, or there is no run in any, unless ``allow_none``.
        """
        self.paths = list(paths)
        self.runs, self.left_out = files.find_runs(self.paths)
        if not self.runs and not allow_none:
            shown = ", ".join(map(str, paths))
            raise RunError(f"There is no run in {shown} (a run has a recipe.json).")
        self._scanned = time.monotonic()
        self._queries: dict[int, Queries] = {}
        self._pieces: dict[Path, tuple[int, Pieces | None]] = {}
        self._summaries: dict[int, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._building: set[int] = set()
        self.questions: dict[str, Callable[[Options], Any]] = {
            "state": self.state,
            "runs": self.list_runs,
            "run": self.run,
            "curves": self.curves,
            "episodes": self.episodes,
            "episode": self.episode,
            "tasks": self.tasks,
            "task": self.task,
        }

    # -- runs ------------------------------------------------------------------------------------

    def state(self, options: Options) -> dict[str, Any]:
        """Return a text per run that changes with it; the page asks for it again and again."""
        self._rescan()
        return {"runs": [files.signature(run) for _, run in self.runs]}

    def list_runs(self, options: Options) -> dict[str, Any]:
        """Return the summaries of all runs; the position of a run is its number."""
        self._rescan()
        runs = [self._get_summary(number) for number in range(len(self.runs))]
        return {"runs": runs, "left_out": self.left_out}

    def run(self, options: Options) -> dict[str, Any]:
        """Return one run: summary, recipe, evaluations, result, its episodes' state and values."""
        number, run = self._run(options)
        contents = files.read_run(run)
        episodes: dict[str, Any] = {**NO_EPISODES, "choices": {name: [] for name in TEXTS}}
        if contents.episode_bytes:
            queries = self.queries(number)
            with closing(queries.index.connect()) as connection:
                state = self._update(number, connection)
                episodes = {**state, "choices": queries.choices(connection)}
        name = episodes_file(run.path).name
        contents.damage.extend(_damage_of(name, episodes, finished=contents.result is not None))
        return {
            **self._summary(number, contents),
            **files.details(contents),
            "metrics": sorted(files.metric_names(contents)),
            "episodes": episodes,
        }

    def curves(self, options: Options) -> dict[str, Any]:
        """Return one metric of the runs in ``runs`` (all of them by default)."""
        metric = options.get("metric", DEFAULT_METRIC)
        numbers = self._numbers(options) if options.get("runs") else range(len(self.runs))
        read = {number: files.read_run(self.runs[number][1]) for number in numbers}
        names = set().union(*map(files.metric_names, read.values()))
        series = {n: files.curves(contents, [metric])[metric] for n, contents in read.items()}
        return {"metric": metric, "metrics": sorted(names), "series": series}

    # -- episodes --------------------------------------------------------------------------------

    def episodes(self, options: Options) -> dict[str, Any]:
        """Return a page of a run's episodes; see `gem_view.query.Queries.page`."""
        number, _ = self._run(options)
        queries = self.queries(number)
        with closing(queries.index.connect()) as connection:
            state = self._update(number, connection)
            return {**state, **queries.page(connection, options)}

    def episode(self, options: Options) -> dict[str, Any]:
        """Return one episode, the texts of its tokens, and the numbers of those beside it."""
        number, run = self._run(options)
        episode = _integer(options, "id")
        index = self.queries(number).index
        with closing(index.connect()) as connection:
            self._update(number, connection)  # an address may be opened before any list
            record = index.record(connection, episode)
            require_shown(record, f"Episode {episode}")
            sides = {
                "previous": "SELECT max(id) FROM episodes WHERE id < ?",
                "next": "SELECT min(id) FROM episodes WHERE id > ?",
            }
            near = {k: connection.execute(q, (episode,)).fetchone()[0] for k, q in sides.items()}
        return {"id": episode, **near, "record": record, **self.pieces(run, record)}

    def tasks(self, options: Options) -> dict[str, Any]:
        """Return the tasks that all of ``runs`` have logged, with the result in each.

        ``different`` keeps those in which the success differs; ``offset`` counts tasks.
        """
        numbers = self._numbers(options)
        joined = ""
        for k, number in enumerate(numbers):
            with closing(self.queries(number).index.connect()) as connection:
                self._update(number, connection)
            if k:
                joined += f" JOIN r{k}.episodes e{k} ON {_same_task(k)}"
        columns = ["e0.step", "e0.split", "e0.idx", "e0.env", "e0.seed"]
        for k in range(len(numbers)):
            columns += [f"e{k}.id", f"e{k}.success", f"e{k}.reward", f"e{k}.turns"]
        condition = "e0.idx >= 0"
        if options.get("different") == "1":
            others = [f"e{k}.success != e0.success" for k in range(1, len(numbers))]
            condition += f" AND ({' OR '.join(others) or '0'})"
        query = f"SELECT {','.join(columns)} FROM main.episodes e0{joined} WHERE {condition}"
        query += " ORDER BY e0.step, e0.split, e0.idx LIMIT 200 OFFSET ?"
        with closing(self._attach(numbers)) as connection:
            rows = connection.execute(query, (max(0, _integer(options, "offset", 0)),)).fetchall()
        return {"runs": numbers, "tasks": [_task(row) for row in rows]}

    def task(self, options: Options) -> dict[str, Any]:
        """Return the episodes of one task in every run of ``runs``, and where they differ."""
        numbers = self._numbers(options)
        key = (_integer(options, "step"), options.get("split", ""), _integer(options, "idx"))
        episodes = []
        for number in numbers:
            index = self.queries(number).index
            with closing(index.connect()) as connection:
                self._update(number, connection)
                query = "SELECT id FROM episodes WHERE step = ? AND split = ? AND idx = ?"
                row = connection.execute(query, key).fetchone()
                if row is None:
                    name = self.runs[number][0]
                    raise RunError(
                        f"{name} logged no episode {key[2]} of step {key[0]} ({key[1]})."
                    )
                record = index.record(connection, row[0])
            require_shown(record, f"Episode {row[0]} of {self.runs[number][0]}")
            pieces = self.pieces(self.runs[number][1], record)
            episodes.append({"run": number, "id": row[0], "record": record, **pieces})
        return {"episodes": episodes, "parting": find_divergence([e["record"] for e in episodes])}

    # -- helpers ---------------------------------------------------------------------------------

    def pieces(self, run: RunDir, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the text of every token of every segment as ``pieces``.

        They are ``None`` where the run has no vocabulary; ``note`` says why one cannot be read.
        """
        path = find_tokenizer(run)
        if path is None:
            return {"pieces": None, "note": None}
        changed = path.lstat().st_mtime_ns
        if self._pieces.get(path, (0, None))[0] != changed:
            try:
                self._pieces[path] = (changed, read_pieces(path))
            except RunError as error:
                note = str(error).replace(f"{run.path}{os.sep}", "")
                return {"pieces": None, "note": note}
        vocabulary = self._pieces[path][1]
        if vocabulary is None:
            return {"pieces": None, "note": None}
        texts = [vocabulary.texts(segment["token_ids"]) for segment in record.get("segments", ())]
        return {"pieces": texts, "note": None}

    def queries(self, number: int) -> Queries:
        """Return the queries on the episodes of a run; its index is opened at the first call."""
        with self._lock:
            source = episodes_file(self.runs[number][1].path)
            known = self._queries.get(number)
            if known is None or known.index.source != source:  # lines were moved into blocks
                self._queries[number] = Queries(EpisodeIndex(source, cache_root() / "view"))
            return self._queries[number]

    def _update(self, number: int, connection: sqlite3.Connection) -> dict[str, Any]:
        """Index what is new, what is more than one batch in a thread, and return the state."""
        index = self.queries(number).index
        state = index.state(connection)
        missing = state["bytes"] - state["indexed_bytes"]
        if abs(missing) > BATCH_BYTES:
            if not state["indexed_bytes"]:  # the first page has something to show
                index.update(connection, 1)
                state = index.state(connection)
            self._build(number, index)
        elif index.update(connection, BATCH_BYTES):
            state = index.state(connection)
        return state

    def _build(self, number: int, index: EpisodeIndex) -> None:
        with self._lock:
            if number in self._building:
                return
            self._building.add(number)

        def work() -> None:
            try:
                with closing(index.connect()) as connection:
                    index.update(connection)
            finally:
                self._building.discard(number)

        threading.Thread(target=work, name=f"index {index.source}", daemon=True).start()

    def _get_summary(self, number: int) -> dict[str, Any]:
        """Return the summary of a run; its files are read again when they have changed."""
        name, run = self.runs[number]
        now = files.signature(run)
        kept = self._summaries.get(number)
        if kept is None or kept[0] != now:
            kept = (now, files.summary(name, files.read_run(run)))
            self._summaries[number] = kept
        return {"id": number, **kept[1], "status": _status(run, kept[1]["damage"])}

    def _summary(self, number: int, contents: files.Contents) -> dict[str, Any]:
        name, run = self.runs[number]
        status = _status(run, contents.damage)
        return {"id": number, **files.summary(name, contents), "status": status}

    def _rescan(self) -> None:
        """Append the runs that began since; the numbers of the others stay."""
        with self._lock:
            if time.monotonic() - self._scanned < _RESCAN_SECONDS:
                return
            known = {run.path for _, run in self.runs}
            found = files.find_runs(self.paths)
            self.runs += [r for r in found.runs if r[1].path not in known]
            self.left_out = found.left_out
            self._scanned = time.monotonic()

    def _attach(self, numbers: Sequence[int]) -> sqlite3.Connection:
        connection = self.queries(numbers[0]).index.connect()
        for k, number in enumerate(numbers[1:], 1):
            path = os.fspath(self.queries(number).index.path)
            connection.execute(f"ATTACH DATABASE ? AS r{k}", (path,))
        return connection

    def _run(self, options: Options) -> tuple[int, RunDir]:
        number = _integer(options, "run")
        if not 0 <= number < len(self.runs):
            raise RunError(f"There is no run {number}.")
        return number, self.runs[number][1]

    def _numbers(self, options: Options) -> list[int]:
        texts = options.get("runs", "").split(",")
        numbers = [self._run({"run": text})[0] for text in texts]
        if len(set(numbers)) != len(numbers):
            raise RunError("runs: a run is named twice.")
        if len(numbers) > MAX_COMPARED and "metric" not in options:
            raise RunError(f"runs: at most {MAX_COMPARED} can be compared.")
        return numbers


def _status(run: RunDir, damage: Sequence[str]) -> str:
    return "damaged" if damage else files.status_of(run)


def _damage_of(name: str, episodes: Mapping[str, Any], finished: bool) -> list[str]:
    """Return why a file of episodes is damaged, from the state of its index."""
    found = []
    if episodes["broken"]:
        found.append(f"{name}: {episodes['broken']} lines or blocks are no episodes.")
    if episodes["end"] == "damaged":
        found.append(f"{name} is damaged after byte {episodes['indexed_bytes']:,}.")
    if episodes["end"] == "unfinished" and finished:  # of another run it is what a killed one left
        found.append(f"{name} is cut off after byte {episodes['indexed_bytes']:,}.")
    return found


def _same_task(k: int) -> str:
    keys = [f"e{k}.{name} = e0.{name}" for name in ("step", "split", "idx", "env")]
    return " AND ".join([*keys, f"e{k}.idx >= 0", f"e{k}.seed IS e0.seed"])


def _task(row: Sequence[Any]) -> dict[str, Any]:
    results = [
        dict(zip(("id", "success", "reward", "turns"), row[k : k + 4], strict=True))
        for k in range(5, len(row), 4)
    ]
    names = ("step", "split", "idx", "env", "seed")
    return {**dict(zip(names, row[:5], strict=True)), "results": results}


def _integer(options: Options, name: str, default: int | None = None) -> int:
    text = options.get(name, "")
    if text == "" and default is not None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise RunError(f"{name}: {text!r} is not a whole number.") from None
    if abs(value) >= 2**63:
        raise RunError(f"{name}: {text!r} is too large.")
    return value
