"""Tables, pictures and the page are made from the files alone."""

from __future__ import annotations

import base64
import csv
import io
import math

import pytest

from gem_compare.page import write_page
from gem_compare.plots import curves, times
from gem_compare.results import (
    csv_text,
    markdown,
    mean_interval,
    read_cells,
    select_shared,
)
from gem_compare.runner import GridPlan, run_grid
from gem_core.errors import RunError


@pytest.fixture
def grid(tmp_path, cells, behave):
    behave("oat/rebn/seed2", "fails")
    run_grid(cells, GridPlan(tmp_path), lambda _: None)
    return tmp_path


def test_cells_are_read_from_their_paths(grid):
    cells = read_cells(grid)
    assert [(c.trainer, c.seed, c.status) for c in cells] == [
        *[("oat", seed, "done" if seed < 2 else "failed") for seed in range(3)],
        *[("trl", seed, "done") for seed in range(3)],
    ]
    assert cells[2].reason == "RuntimeError: out of luck" and cells[0].algorithm == "rebn"


def test_table_pools_seeds_and_names_failures(grid):
    text = markdown(read_cells(grid))
    (oat,) = [line for line in text.splitlines() if "| oat |" in line]
    (trl,) = [line for line in text.splitlines() if "| trl |" in line]
    assert "| 0,1,2 |" in trl and "0.850 (0.800 to 0.900)" in trl and trl.endswith("| 6 | done |")
    assert "| 0,1 |" in oat and "1 failed: RuntimeError: out of luck" in oat


def test_csv_has_every_cell(grid):
    rows = list(csv.DictReader(io.StringIO(csv_text(read_cells(grid)))))
    assert len(rows) == 6 and rows[3]["after"] == "0.8" and rows[2]["status"] == "failed"
    assert rows[3]["sampled_tokens"] == str(8 * (11 + 12 + 13)) and not rows[2]["sampled_tokens"]


def test_times_compare_the_same_work(grid):
    shared = select_shared([c for c in read_cells(grid) if c.result])
    assert [(c.trainer, c.seed) for c in shared] == [("oat", 0), ("oat", 1), ("trl", 0), ("trl", 1)]
    apart = [c for c in shared if (c.trainer == "oat") == (c.seed == 0)]
    assert select_shared(apart) == apart


def test_the_page_is_the_viewer_in_one_file(grid, tmp_path, unpacked):
    cells = read_cells(grid)
    pictures = [*curves(cells, grid), times(cells, grid / "times.png")]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)
    page = write_page(grid, cells, pictures, grid / "report.html").read_text()
    assert 'src="' not in page and "default-src 'none'" in page
    data = unpacked(page)
    assert [run["name"] for run in data["runs"]["runs"]] == sorted(
        c.path.relative_to(grid).as_posix() for c in cells if c.run.exists
    )
    assert data["report"]["summary"] == "5 of 6 cells finished."
    sections = {section["title"]: section for section in data["report"]["sections"]}
    assert "RuntimeError: out of luck" in sections["Failed"]["items"][0]
    assert sections["Every trainer and algorithm"]["rows"]
    shown = [base64.b64decode(picture["data"]) for picture in sections["Plots"]["pictures"]]
    assert shown == [picture.read_bytes() for picture in pictures]


def test_nothing_to_draw_is_an_error(tmp_path):
    with pytest.raises(RunError, match="No cell is finished"):
        curves([], tmp_path)


def test_interval_over_seeds():
    mean, half = mean_interval([0.8, 0.9, 1.0])
    assert mean == pytest.approx(0.9) and half == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert math.isnan(mean_interval([0.5])[1])
