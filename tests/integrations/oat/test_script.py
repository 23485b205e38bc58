"""``recipes/oat/train.py`` puts Oat together by hand.

``tests/contract/test_repeatable.py`` shows that it trains what ``gem-core train`` trains.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "recipes" / "oat" / "train.py"


def start(*arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_finished_run_is_left_as_it_is(tmp_path):
    words = ["--run", str(tmp_path / "script")]
    for override in ("batch.episodes=4", "train.steps=1", "model.tiny.warm_start_steps=20"):
        words += ["--set", override]
    done = start(*words)
    assert done.returncode == 0, done.stderr[-3000:]
    again = start(*words, "--resume")
    assert again.returncode == 0, again.stderr[-3000:]
    lines = (tmp_path / "script" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1, "nothing to do"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "hardware.device=gpu"], "the recipe asks for a GPU, and there is none"),
        (["--set", "algorithm.entropy_coef=0.1"], "algorithm.entropy_coef"),
    ],
)
def test_what_the_script_cannot_do_is_said(tmp_path, words, message):
    done = start("--run", str(tmp_path / "run"), *words)
    assert done.returncode != 0 and message in done.stderr
