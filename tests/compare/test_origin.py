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

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CLEAN = "0123456789" * 4
DIRTY = "f" * 40 + "+"


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


def test_committed_results_of_the_older_format_are_read(tmp_path, unpacked):
    runs = [RunDir(path) for path in sorted((BENCHMARKS / "quickstart" / "results").glob("seed*"))]
    assert runs and before_after(runs).count("\n") == len(runs)
    (line,) = origin_lines(run.result for run in runs)
    assert f"({len(runs)}); {len(runs)} of {len(runs)} with uncommitted changes" in line

    cells = read_cells(BENCHMARKS / "trainers" / "results")
    results = BENCHMARKS / "trainers" / "results"
    page = write_page(results, cells, [], tmp_path / "report.html").read_text()
    *_, origin = unpacked(page)["report"]["sections"]
    text = " ".join(origin["items"])
    assert f"27 of {len(cells)} with uncommitted changes (+)" in text
    assert "Resumed in an older version" in text
    rows = list(csv.DictReader(io.StringIO(csv_text(cells))))
    assert all(row["commit"] and not row["sessions"] for row in rows)


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
