"""The page and what it shows as one HTML file, which needs neither a server nor a network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from gem_core.errors import RunError
from gem_view import runs as files
from gem_view.answers import encode
from gem_view.api import MAX_COMPARED, Viewer
from gem_view.index import NO_EPISODES
from gem_view.query import COLUMNS
from gem_view.server import SCRIPTS, page_file

EPISODES = 200
RUN_BYTES = 64 << 20
"""So many bytes of the episodes of a run are in the file."""
_TOO_MUCH = "It was not exported: the file would be too large."


def export(
    viewer: Viewer,
    target: Path,
    episodes: int = EPISODES,
    report: Mapping[str, Any] | None = None,
) -> Path:
    """Write the runs of ``viewer`` to the file ``target``.

    Args:
        viewer: the runs.
        target: the HTML file; its directory must exist.
        episodes: the last so many episodes of each run are included.
        report: what the first page shows besides: ``summary`` and ``sections``, each with ``title``
            and ``head`` and ``rows`` of a table, ``items`` of a list, or ``pictures``, which have
            ``name`` and ``data`` (a PNG in base64).
    """
    data = {**collect(viewer, episodes), "report": report}
    unfinished = target.with_name(target.name + ".partial")
    unfinished.write_text(page(data), encoding="utf-8")
    unfinished.replace(target)
    return target


def collect(viewer: Viewer, episodes: int) -> dict[str, Any]:
    """Return the answers to everything that the exported page can ask."""
    numbers = range(len(viewer.runs))
    data: dict[str, Any] = {
        "limits": {"episodes": episodes, "date": time.strftime("%Y-%m-%d")},
        "runs": viewer.list_runs({}),
        "run": {},
        "curves": {},
        "episodes": {},
        "episode": {},
    }
    for number in numbers:
        answer = viewer.run({"run": str(number)})
        listed, records = _episodes(viewer, number, episodes, answer["episode_bytes"])
        answer["info"] = {k: v for k, v in (answer["info"] or {}).items() if k != "command"}
        contents = files.read_run(viewer.runs[number][1])
        data["run"][number] = answer
        data["curves"][number] = files.curves(contents, answer["metrics"])
        data["episodes"][number] = listed
        data["episode"].update({f"{number}/{k}": record for k, record in records.items()})
    data["tasks"], data["task"] = _tasks(viewer, data["episodes"])
    return data


def page(data: Mapping[str, Any]) -> str:
    """Return the page with its style, its scripts and ``data`` in it.

    The content security policy allows exactly these scripts, by their hashes.
    """
    style = page_file("style.css")
    html = page_file("index.html")
    html = _replace_once(
        html, '<link rel="stylesheet" href="style.css">', f"<style>{style}</style>"
    )
    hashes = []
    for name in SCRIPTS:
        script = page_file(name)
        hashes.append(_hash(script))
        tag = f'<script defer src="{name}"></script>'
        html = _replace_once(html, tag, f"<script>{script}</script>")
    policy = f"default-src 'none'; script-src {' '.join(hashes)}; style-src {_hash(style)}; "
    policy += "img-src data:; base-uri 'none'; form-action 'none'"
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = _replace_once(html, '<meta charset="utf-8">', meta)
    # Base64 has no sign of HTML: an episode cannot end the block.
    text = base64.b64encode(gzip.compress(encode(data), mtime=0)).decode()
    block = f'<script type="text/plain" id="gem-data">{text}</script>\n'
    first = html.index("<script>")
    return html[:first] + block + html[first:]


def _episodes(
    viewer: Viewer, number: int, count: int, data_bytes: int
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return the list of the last episodes of a run, and each of them."""
    if not data_bytes:
        return {"columns": COLUMNS, "rows": [], "state": NO_EPISODES}, {}
    queries = viewer.queries(number)
    with closing(queries.index.connect()) as connection:
        queries.index.update(connection)
        query = f"SELECT {','.join(COLUMNS)} FROM episodes ORDER BY id DESC LIMIT ?"
        rows = connection.execute(query, (count,)).fetchall()[::-1]
        state = queries.index.state(connection)
    ids = [row[0] for row in rows]
    records = {}
    size = 0
    for k, episode in enumerate(ids):
        question = partial(viewer.episode, {"run": str(number), "id": str(episode)})
        answer: dict[str, Any] = _answer(question) if size < RUN_BYTES else {"error": _TOO_MUCH}
        size += len(encode(answer))
        answer["previous"] = ids[k - 1] if k else None
        answer["next"] = ids[k + 1] if k + 1 < len(ids) else None
        records[episode] = answer
    return {"columns": COLUMNS, "rows": rows, "state": state}, records


def _answer(question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return an answer, or as ``error`` why there is none: one episode does not stop the others."""
    try:
        return question()
    except RunError as error:
        return {"error": str(error)}


def _tasks(
    viewer: Viewer, lists: Mapping[int, Mapping[str, Any]]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the tasks that all exported runs with episodes have, and the comparison of each."""
    numbers = [number for number, listed in lists.items() if listed["rows"]]
    if not 2 <= len(numbers) <= MAX_COMPARED:
        return None, {}
    by_task = [_results(lists[number]["rows"]) for number in numbers]
    common = set.intersection(*(set(results) for results in by_task))
    runs = ",".join(map(str, numbers))
    tasks = []
    compared = {}
    for key in sorted(common, key=lambda k: (k[0], k[1], k[2])):
        step, split, idx, env, seed = key
        results = [found[key] for found in by_task]
        tasks.append(
            {"step": step, "split": split, "idx": idx, "env": env, "seed": seed, "results": results}
        )
        asked = {"runs": runs, "step": str(step), "split": split, "idx": str(idx)}
        compared[f"{step}/{split}/{idx}"] = _answer(partial(viewer.task, asked))
    return {"runs": numbers, "tasks": tasks}, compared


def _results(rows: Sequence[Sequence[Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {}
    for row in rows:
        at = dict(zip(COLUMNS, row, strict=True))
        if at["idx"] >= 0:
            key = (at["step"], at["split"], at["idx"], at["env"], at["seed"])
            found[key] = {name: at[name] for name in ("id", "success", "reward", "turns")}
    return found


def _replace_once(html: str, old: str, new: str) -> str:
    if html.count(old) != 1 or "</script" in new[8:-9]:
        raise ValueError(f"the page has changed: {old}")
    return html.replace(old, new)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
