"""``recipes/oat/train.py`` puts Oat together by hand; it trains what ``launch.run`` trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.training.runs import RunDir
from gem_oat import launch

SCRIPT = Path(__file__).parents[3] / "recipes" / "oat" / "train.py"


def start(*arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def without_times(lines):
    return [{k: v for k, v in line.items() if not k.startswith("time")} for line in lines]


def test_the_script_trains_the_same(recipe, tmp_path):
    overrides = [
        "batch.episodes=4",
        "train.steps=2",
        "algorithm.epochs=2",
        "train.log_episodes=4",
        "eval.every=2",
        "eval.inside_episodes=2",
    ]
    words = [word for override in overrides for word in ("--set", override)]
    done = start("--run", str(tmp_path / "script"), *words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "step 2: success" in done.stdout
    script = RunDir(tmp_path / "script")
    launched = RunDir.create(tmp_path / "launched", script.recipe, "oat")
    launch.run(script.recipe, launched)
    assert without_times(script.metrics()) == without_times(launched.metrics())
    tokens = [
        [[s.token_ids for s in episode.segments] for _, episode in run.episodes()]
        for run in (script, launched)
    ]
    assert tokens[0] == tokens[1] and len(tokens[0]) == 8 + 2  # 2 of the evaluation
    weights = [(run.model / "model.safetensors").read_bytes() for run in (script, launched)]
    assert weights[0] == weights[1]
    again = start("--run", str(tmp_path / "script"), "--resume", *words)
    assert again.returncode == 0, again.stderr[-3000:]
    assert len((script.path / "metrics.jsonl").read_text().splitlines()) == 2, "nothing to do"


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
