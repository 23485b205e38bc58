"""Opening, searching and scrolling 100,000 and 1,000,000 episodes; the formats that were compared.

    .venvs/core/bin/python benchmarks/view/run.py                # the index and the server
    .venvs/core/bin/python benchmarks/view/run.py --formats --counts 100000    # other formats

The episodes are those of the frozen batch of the parity tests with other steps, seeds and indices:
real columns, turns, tokens and log-probabilities. The files are written below ``build/view`` and
kept for the next time. The file was read before, so that it is in the page cache, as that of a run
which has just been written.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gem_core.runs import provenance
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_view.index import EpisodeIndex

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FROZEN = ROOT / "benchmarks" / "parity" / "episodes.jsonl"
PER_STEP = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--formats", action="store_true", help="compare the file formats instead")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "view")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    provenance.check_option(parser, arguments)
    commit = provenance.commit()  # of the code that runs, not of a later one
    measure = formats if arguments.formats else opening
    cells = [{"episodes": n, **measure(make_run(arguments.folder, n))} for n in arguments.counts]
    name = "formats.json" if arguments.formats else "opening.json"
    target = HERE / "results" / name
    target.parent.mkdir(exist_ok=True)
    result = {
        "commit": commit,
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "cells": cells,
    }
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(target.read_text(encoding="utf-8"))
    return 0


def make_run(folder: Path, count: int) -> RunDir:
    """Return a run of ``count`` episodes, written unless it is there."""
    run = RunDir(folder / f"run-{count}")
    if (run.path / store.FILE).exists():
        return run
    recipe = load_recipe("guess-the-number-easy", "tiny")
    run = RunDir.create(run.path, recipe, "trl")
    plain = run.path / store.PLAIN_FILE
    with plain.open("w", encoding="utf-8") as file:
        file.writelines(lines(count))
    store.convert(run.path)
    return run


def lines(count: int) -> Iterator[str]:
    """Yield ``count`` lines of episodes; only the end of a line is made anew, for speed."""
    frozen = [json.loads(line) for line in FROZEN.read_text(encoding="utf-8").splitlines()]
    bodies = []
    for row in frozen:
        row = {k: v for k, v in row.items() if k not in ("step", "split", "seed", "group", "index")}
        bodies.append(json.dumps(row)[1:])
    for number in range(count):
        step, index = divmod(number, PER_STEP)
        keys = f'"step": {step + 1}, "split": "train", "seed": {number // 8}, '
        keys += f'"group": {index // 8}, "index": {number}, '
        yield "{" + keys + bodies[number * 7919 % len(bodies)] + "\n"


# -- the index and the server --------------------------------------------------------------------


def opening(run: RunDir) -> dict[str, Any]:
    """Measure the index built from nothing, then a server opened on it in a new process."""
    cache = run.path.parent / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    index = EpisodeIndex(run.path / store.FILE, cache / "view")
    connection = index.connect()
    begun = time.perf_counter()
    index.update(connection)
    built = time.perf_counter() - begun
    size = index.source.stat().st_size
    connection.close()
    stored = index.path.stat().st_size
    figures = {"file_mb": round(size / 1e6), "index_mb": round(stored / 1e6)}
    figures["build_s"] = round(built, 2)
    return {**figures, "with_index": visit(run, cache), "without_index": visit(run, cache, True)}


def visit(run: RunDir, cache: Path, anew: bool = False) -> dict[str, Any]:
    """Start a server in a new process, as `gem-core view` does, and ask what the page asks."""
    if anew:
        shutil.rmtree(cache)
    environment = {**os.environ, "GEM_CORE_CACHE": str(cache)}
    begun = time.perf_counter()
    command = [sys.executable, str(Path(__file__)), "--serve", str(run.path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            return ask(process, begun, search=not anew)
        finally:
            process.terminate()


def ask(process: subprocess.Popen[str], begun: float, search: bool) -> dict[str, Any]:
    assert process.stdout is not None
    client = Client(int(process.stdout.readline()))
    client.get("api/runs")
    page = client.get("api/episodes?run=0&limit=200")
    figures: dict[str, Any] = {"first_page_s": round(time.perf_counter() - begun, 3)}
    figures["episodes_then"] = page["total"]
    if search:
        figures |= queries(client, page["total"])
    while not search and page["bytes"] > page["indexed_bytes"]:
        time.sleep(0.05)
        page = client.get("api/episodes?run=0&limit=1")
    if not search:
        figures["all_indexed_s"] = round(time.perf_counter() - begun, 3)
    usage = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    peak = next(line for line in usage.splitlines() if line.startswith("VmHWM"))
    figures["peak_memory_mb"] = round(int(peak.split()[1]) / 1000)
    return figures


def queries(client: Client, total: int) -> dict[str, Any]:
    """Return seconds of sorting, filtering and searching, and of the pages while one scrolls."""
    figures = {}
    for name, query in {
        "sort_s": "sort=reward&order=desc",
        "filter_s": "success=1&reward_min=0.5&step_max=1000",
        "search_absent_s": "text=no+such+text",
        "search_common_s": "text=boxed",
    }.items():
        begun = time.perf_counter()
        answer = client.get(f"api/episodes?run=0&{query}")
        figures[name] = round(time.perf_counter() - begun, 3)
        figures[name.replace("_s", "_total")] = answer["total"]
    seconds = []
    for k in range(50):
        begun = time.perf_counter()
        client.get(f"api/episodes?run=0&sort=reward&order=desc&offset={total * k // 50}")
        seconds.append(time.perf_counter() - begun)
    figures["scroll_median_ms"] = round(statistics.median(seconds) * 1000, 1)
    figures["scroll_worst_ms"] = round(max(seconds) * 1000, 1)
    begun = time.perf_counter()
    client.get(f"api/episode?run=0&id={total // 2}")
    figures["open_episode_ms"] = round((time.perf_counter() - begun) * 1000, 1)
    return figures


class Client:
    """Asks a server for JSON."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def get(self, path: str) -> Any:
        self.connection.request("GET", f"/{path}")
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return json.loads(body)


def serve(path: Path) -> int:
    """Serve a run until the process ends; the first line that is printed is the port."""
    from gem_view.server import make_server

    server = make_server([path])
    print(server.server_port, flush=True)
    server.serve_forever()
    return 0


# -- formats -------------------------------------------------------------------------------------


def formats(run: RunDir) -> dict[str, Any]:
    """Measure ways to store the episodes: bytes, one episode, one column, one more step."""
    work = run.path.parent / "formats"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    source = work / store.PLAIN_FILE
    with source.open("wb") as file:
        file.writelines(line + b"\n" for line in store.read_lines(run.path / store.FILE))
    return {
        "gzip blocks of a step, and an index": _blocks(source, work, PER_STEP),
        "gzip blocks of one episode, and an index": _blocks(source, work, 1),
        "JSON lines, and an index": _with_index(source, work, None),
        "SQLite, one compressed row per episode": _sqlite(source, work, 1),
        "SQLite, one compressed row per step": _sqlite(source, work, PER_STEP),
        "Parquet, zstd, a row group per step": _parquet(source, work),
    }


def _blocks(source: Path, work: Path, lines: int) -> dict[str, Any]:
    folder = work / f"blocks-{lines}"
    folder.mkdir()
    begun = time.process_time()
    with source.open("rb") as file:
        while batch := list(islice(file, lines)):
            store.append(folder, map(json.loads, batch))
    return _with_index(folder / store.FILE, folder, time.process_time() - begun)


def _with_index(source: Path, work: Path, written: float | None) -> dict[str, Any]:
    begun = time.perf_counter()
    index = EpisodeIndex(source, work)
    connection = index.connect()
    index.update(connection)
    built = time.perf_counter() - begun
    total = connection.execute("SELECT count(*) FROM episodes").fetchone()[0]
    mean = _timed(lambda: connection.execute("SELECT avg(reward) FROM episodes").fetchone())
    one = _timed(lambda: index.record(connection, total // 2))
    connection.close()
    size = source.stat().st_size + index.path.stat().st_size
    lost = "line" if written is None else "block"
    note = f"append to the file; killed: one {lost} at most"
    return {**_figures(written, size, mean, one, note), "index_s": round(built, 2)}


def _sqlite(source: Path, work: Path, lines: int) -> dict[str, Any]:
    target = work / f"rows-{lines}.sqlite"
    begun = time.process_time()
    connection = sqlite3.connect(target)
    connection.execute("CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB)")
    connection.execute(
        "CREATE TABLE episodes (id INTEGER PRIMARY KEY, reward REAL, body INTEGER, place INTEGER)"
    )
    total = 0
    with source.open("rb") as file:
        while batch := list(islice(file, lines)):
            packed = zlib.compress(b"".join(batch), 6)
            row = connection.execute("INSERT INTO bodies (body) VALUES (?)", (packed,)).lastrowid
            rows = [(total + k, _reward(line), row, k) for k, line in enumerate(batch)]
            connection.executemany("INSERT INTO episodes VALUES (?, ?, ?, ?)", rows)
            total += len(batch)
            if total % PER_STEP == 0:  # a step at a time
                connection.commit()
    connection.commit()
    built = time.process_time() - begun
    mean = _timed(lambda: connection.execute("SELECT avg(reward) FROM episodes").fetchone())
    query = "SELECT bodies.body, place FROM episodes JOIN bodies ON bodies.id = episodes.body"
    query += " WHERE episodes.id = ?"

    def one() -> Any:
        body, place = connection.execute(query, (total // 2,)).fetchone()
        return json.loads(zlib.decompress(body).splitlines()[place])

    seconds = _timed(one)
    connection.close()
    size = target.stat().st_size
    return _figures(built, size, mean, seconds, "a transaction; not on network file systems")


def _parquet(source: Path, work: Path) -> dict[str, Any]:
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema([("reward", pyarrow.float64()), ("body", pyarrow.string())])
    begun = time.process_time()
    target = work / "episodes.parquet"
    with (
        source.open("rb") as file,
        parquet.ParquetWriter(target, schema, compression="zstd") as writer,
    ):
        rows: list[bytes] = []
        for line in file:
            rows.append(line)
            if len(rows) == PER_STEP:  # a run appends a step at a time
                writer.write_batch(_batch(rows, schema))
                rows = []
        if rows:
            writer.write_batch(_batch(rows, schema))
    built = time.process_time() - begun
    begun = time.perf_counter()
    opened = parquet.ParquetFile(target)
    footer = time.perf_counter() - begun
    rewards = _timed(lambda: opened.read(["reward"]))
    middle = opened.num_row_groups // 2
    one = _timed(lambda: json.loads(opened.read_row_group(middle, ["body"])["body"][0].as_py()))
    size = target.stat().st_size
    note = "not possible: the footer is written last; killed: the file cannot be read"
    return {**_figures(built, size, rewards, one, note), "footer_s": round(footer, 3)}


def _batch(rows: list[bytes], schema: Any) -> Any:
    import pyarrow

    columns = [[_reward(row) for row in rows], [row.decode() for row in rows]]
    return pyarrow.record_batch(columns, schema=schema)


def _reward(line: bytes) -> float:
    return float(sum(turn["reward"] for turn in json.loads(line)["turns"]))


def _timed(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _figures(
    built: float | None, size: int, mean: float, one: float, append: str
) -> dict[str, Any]:
    figures: dict[str, Any] = {} if built is None else {"write_cpu_s": round(built, 1)}
    figures["mb"] = round(size / 1e6)
    figures |= {"mean_reward_s": round(mean, 3), "one_episode_ms": round(one * 1000, 2)}
    return {**figures, "append": append}


if __name__ == "__main__":
    sys.exit(main())
