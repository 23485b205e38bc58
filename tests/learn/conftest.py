"""The modules of ``benchmarks/learn``, and cells made of one that its command wrote."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "learn"
sys.path.append(str(FOLDER))


@pytest.fixture
def pages(monkeypatch):
    """The module ``page``; other benchmarks have modules of this name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "page", raising=False)
    import page

    yield page
    sys.modules.pop("page", None)


@pytest.fixture(scope="session")
def measured():
    """The cell of ``cell.json``, which ``benchmarks/learn/run.py`` wrote with TRL."""
    from learn_cells import read_cell

    return read_cell(Path(__file__).parent / "cell.json")


@pytest.fixture(scope="session")
def make_cell(measured):
    """``make_cell(seed, success, **changes)``: with this share of successes in 200 tasks.

    Each control has a success of 0.2. The tasks that succeed follow a fixed order, which differs
    between seeds.
    """
    from learn_cells import Played

    tasks = 200

    def outcomes(share, seed):
        # 7919 is prime to the number of tasks, so that every task has a place of its own.
        return "".join("01"[(k * 7919 + seed * 31) % tasks < share * tasks] for k in range(tasks))

    def make(seed, success, **changes):
        played = Played(outcomes(success, seed), outcomes(success, seed))
        figures = {
            "seed": seed,
            "recipe": {**measured.recipe, "seed": seed},
            "before": Played(outcomes(0.2, seed + 1), outcomes(0.2, seed + 1)),
            "after": played,
            "controls": {name: outcomes(0.2, seed + 2) for name in measured.controls},
            "eval_tasks": {**measured.eval_tasks, "episodes": tasks, "distinct": 150},
        }
        return msgspec.structs.replace(measured, **{**figures, **changes})

    return make
