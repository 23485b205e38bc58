"""Results say which commits they are from, and which of their seconds are sums or estimates."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from gem_compare.page import write_page
from gem_compare.results import csv_text, read_cells
from gem_core.cli import main
from gem_core.results import before_after, origin_lines
from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

SUITE = Path(__file__).resolve().parents[2] / "benchmarks" / "suite" / "results"
CLEAN = "0123456789" * 4
DIRTY = "f" * 40 + "+"
OLDER = {"format": 1, "commit": DIRTY, "resumed": True}


def session(commit=CLEAN, estimated=False):
    return {"outcome": "finished", "commit": commit, "seconds": {}, "estimated": estimated}


def result(*sessions):
    return {"format": 2, "commit": sessions[0]["commit"], "sessions": list(sessions)}


def test_dirty_results_and_sessions_are_counted():
    lines = origin_lines(
        [
            result(session()),
            result(session(), session(estimated=True)),
            result(session(DIRTY), session()),
        ]
    )
    assert lines == [
        "Commits of the results: 0123456789 (2), ffffffffff+ (1); 1 of 3 with uncommitted changes "
        "(+).",
        "Of several sessions, whose seconds are added up: 2 of 3.",
        "With a killed session, whose seconds are estimated from its last step: 1 of 3.",
    ]


def test_results_of_the_older_format_are_read(tmp_path, unpacked):
    results = tmp_path / "results"
    cell = results / "sokoban-easy" / "trl" / "rebn" / "seed0"
    shutil.copytree(SUITE / cell.relative_to(results), cell)
    newer = json.loads((cell / "result.json").read_text())
    older = {key: value for key, value in newer.items() if key != "sessions"}
    (cell / "result.json").write_text(json.dumps({**older, **OLDER}))
    run = RunDir(cell)
    assert before_after([run]).count("\n") == 1
    assert "(1); 1 of 1 with uncommitted changes" in origin_lines([run.result])[0]

    cells = read_cells(results)
    page = write_page(results, cells, [], tmp_path / "report.html").read_text()
    *_, origin = unpacked(page)["report"]["sections"]
    text = " ".join(origin["items"])
    assert "1 of 1 with uncommitted changes (+)" in text
    assert "Resumed in an older version" in text
    (row,) = csv.DictReader(io.StringIO(csv_text(cells)))
    assert row["commit"] and not row["sessions"]


@pytest.fixture
def compare(tmp_path, behave, monkeypatch, capsys):
    """``compare(*options)`` in a checkout with a changed file: exit code and output."""
    monkeypatch.setattr(provenance, "changes", lambda *_: [" M gem_core/core.py"])

    def run(*options):
        out = tmp_path / "out"
        code = main(["compare", "--trainers", "trl", "--out", str(out), *options])
        printed = capsys.readouterr()
        return code, printed.out + printed.err, out

    return run


def test_a_comparison_refuses_a_dirty_checkout(compare):
    code, text, out = compare()
    assert code == 2 and "gem_core/core.py" in text and "--allow-dirty" in text
    assert not out.exists()


def test_a_comparison_of_a_dirty_checkout_is_allowed_by_name(compare):
    code, text, out = compare("--allow-dirty")
    assert code == 0 and "Commits of the results: no commit (1); none is dirty." in text
    (cell,) = out.glob("*/*/*/seed0")
    stored = json.loads((cell / "result.json").read_text())
    (cell / "result.json").write_text(json.dumps({**stored, **result(session(DIRTY))}))
    text = compare("--report-only")[1]
    assert "ffffffffff+ (1); 1 of 1 with uncommitted changes (+)" in text
    assert "ffffffffff+ (1); 1 of 1" in (out / "table.md").read_text()
    shutil.rmtree(out)


def test_a_quick_comparison_measures_nothing_and_is_not_refused(compare):
    assert compare("--quick")[0] == 0
