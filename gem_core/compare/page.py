"""The HTML page of a comparison, with tables and embedded plots."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from gem_core.compare.agreement import side_by_side
from gem_core.compare.results import HEAD, CellResult, summary_rows
from gem_core.report import origin_lines

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-size: 13px } td, th { padding: .25em .7em; text-align: left;
border-bottom: 1px solid #ddd } img { max-width: 100% } .failed { color: #b00020 }
"""


def write_page(cells: Sequence[CellResult], pictures: Iterable[Path], target: Path) -> Path:
    """Write the page with the plots embedded in it."""
    done = [cell for cell in cells if cell.result]
    parts = [f"<h1>Comparison</h1><p>{len(done)} of {len(cells)} cells finished.</p>"]
    parts.append(f"<h2>After training, side by side</h2>{_table(*side_by_side(cells))}")
    parts.append(f"<h2>Every trainer and algorithm</h2>{_table(HEAD, summary_rows(cells))}")
    for picture in pictures:
        data = base64.b64encode(picture.read_bytes()).decode()
        parts.append(f'<p><img alt="{picture.stem}" src="data:image/png;base64,{data}"></p>')
    failed = [cell for cell in cells if cell.status == "failed"]
    if failed:
        texts = [html.escape(f"{cell.path.name}: {cell.reason}") for cell in failed]
        items = "".join(f"<li>{text}</li>" for text in texts)
        parts.append(f'<h2>Failed</h2><ul class="failed">{items}</ul>')
    if done:
        parts.append(f"<h2>Where it ran</h2>{_hardware(done)}")
        origin = origin_lines(cell.result for cell in done if cell.result)
        parts += [f"<p>{html.escape(line)}</p>" for line in origin]
    body = "\n".join(parts)
    target.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>gem-core comparison</title>'
        f"<style>{_STYLE}</style>{body}</html>\n",
        encoding="utf-8",
    )
    return target


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = [
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    ]
    return f"<table><tr>{cells}</tr>{''.join(lines)}</table>"


def _hardware(cells: Sequence[CellResult]) -> str:
    """Return a table of versions and hardware, with a row per trainer."""
    rows = {}
    for cell in cells:
        assert cell.result is not None  # the caller passes only finished cells
        hardware = cell.result["hardware"]
        versions = " ".join(f"{k} {v}" for k, v in cell.result["versions"].items())
        gpus = ", ".join(hardware["gpus"]) or "no GPU"
        where = f"{hardware['processor']}, {hardware['cores']} cores, {gpus}"
        rows[cell.trainer] = (cell.trainer, cell.result["python"], versions, where)
    return _table(("trainer", "Python", "versions", "hardware"), rows.values())
