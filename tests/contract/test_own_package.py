"""A package that `gem-core init` has written trains: its environment, tool and estimator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..installed_plugin import install_plugin

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.mark.slow("oat", "openrlhf", "rl2", "verl")
def test_two_steps_with_everything_that_the_package_has(train, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugin(PLUGIN, tmp_path / "site"))
    keys = ["batch.episodes=32", "model.tiny.warm_start_steps=40"]
    keys += ["algorithm.options.limit=3.0"]  # beyond every return
    status, output, run = train("run", *keys, recipe=PLUGIN / "recipe.toml")
    assert status == 0, output[-4000:]
    rows = run.metrics()
    assert len(rows) == 2
    for row in rows:
        assert row["tool/calls"] > 0, "the teacher of the warm start asks the tool"
        assert row["advantage/mean"] == pytest.approx(0.0, abs=1e-9), "the estimator centres them"
        assert 0 < row["advantage/std"] < 0.9, "and does not divide them by their deviation"
        assert row["grad_norm"] > 0
    assert "my:Change-v0" in json.dumps(run.info)
