"""The page of the throughput benchmarks says what their result files say."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "throughput"
CONDITIONS = {
    "commit": "0123456789abcdef+",
    "machine": "x86_64, Linux",
    "cpus": 2,
    "versions": {"python": "3.11.7"},
    "load_before": 0.5,
    "load_after": 1.5,
}


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("page", "conditions", "rollout", "waiting_envs")
    for name in names:  # of another benchmark
        sys.modules.pop(name, None)
    yield import_module("page")
    for name in names:
        sys.modules.pop(name, None)


def loop(share):
    return {
        "episodes": 64,
        "seconds": 12.5,
        "busy": share,
        "busy_until_the_end": share,
        "cpu_s": 1.0,
        "curve": [share] * 10,
    }


def test_the_page_is_current():
    command = [sys.executable, str(FOLDER / "page.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_figures_conditions_and_what_is_not_measured(page, tmp_path):
    figures = {
        "slots": 32,
        "in_flight": 96,
        "tokens_per_s": 250.0,
        "median_tokens": 50,
        "median_env_ms": 50.0,
        "loops": {"play_many, threads": loop(0.973), "lockstep": loop(0.512)},
    }
    (tmp_path / "rollout.json").write_text(json.dumps({**CONDITIONS, "figures": figures}))
    text = page.page(tmp_path)
    assert "| play_many, threads | 64 | 12.5 | 97.3% | 97.3% | 1.0 |" in text
    assert "Commit 0123456789+; x86_64, Linux, 2 CPUs; python 3.11.7; load average 0.5" in text
    assert text.count("Not measured at a clean commit yet.") == len(page.SECTIONS) - 1
    page.draw(figures, tmp_path / "rollout.png")
    assert 5_000 < (tmp_path / "rollout.png").stat().st_size < 60_000


def test_the_busy_share_counts_the_slots_time(page):
    rollout = import_module("rollout")
    slots = rollout.SLOTS
    spans = [(0.0, 2.0)] * slots + [(2.0, 4.0)] * (slots // 2)
    assert rollout.busy_share(spans, 0.0, 4.0) == 0.75
    assert rollout.busy_share(spans, 1.0, 3.0) == 0.75
    assert rollout.curve(spans, 4.0)[:: rollout.PARTS // 2] == [1.0, 0.5]
    assert rollout.tail_begins(spans) == 0.0
