"""From the wheel, away from the checkout: quickstart, report, evaluation, viewer, conformance.

By the lines of the pages; what needs no torch is in ``tests/release/test_from_wheel.py``.
"""

from __future__ import annotations

import json

import pytest

from gem_conform.checks import CHECKS

SMALL = {
    "train.steps": 2,
    "eval.episodes": 16,
    "batch.episodes": 16,
    "model.tiny.warm_start_steps": 20,
    "train.log_episodes": 4,
}


def exported(away, unpacked):
    """Return the data of the page that the viewer has exported, as text."""
    return json.dumps(unpacked((away.work / "report.html").read_text(encoding="utf-8")))


def look_at_the_quickstart(away, unpacked):
    """Run the lines that look at a run."""
    assert "sokoban-easy" in away.run("docs/start.md", "gem-core report runs/quickstart")
    said = away.run("docs/evaluation.md", "gem-core eval runs/quickstart")
    assert "game:Sokoban-v0-easy" in said
    away.run("docs/view.md", "gem-core view runs/", "--export", "report.html")
    assert "sokoban-easy" in exported(away, unpacked)


def test_a_short_quickstart_is_made_and_looked_at(away, unpacked):
    keys = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    away.run("docs/start.md", "gem-core quickstart", *keys)
    look_at_the_quickstart(away, unpacked)


@pytest.mark.slow
def test_the_quickstart_is_made_and_looked_at(away, unpacked):
    """Minutes."""
    away.run("docs/start.md", "gem-core quickstart", "--overwrite")
    result = json.loads((away.work / "runs/quickstart/result.json").read_text())
    assert result["after"]["success/mean"] > result["before"]["success/mean"]
    look_at_the_quickstart(away, unpacked)


@pytest.mark.slow
def test_a_package_of_ones_own_trains(away):
    page = "docs/write/README.md"
    away.run(page, "gem-core init my-envs")
    away.run(page, "pip install -e my-envs")
    line = "gem-core train my-envs/recipe.toml --trainer trl --profile tiny --run runs/my_envs"
    away.run(page, line, "--set", "train.steps=2")
    assert json.loads((away.work / "runs/my_envs/result.json").read_text())["steps"] == 2


@pytest.mark.slow
def test_a_sixth_trainer_conforms(away):
    """Four minutes: every check."""
    page = "docs/write/adapter.md"
    away.run(page, "gem-core init my-trainer --trainer")
    away.run(page, "pip install -e my-trainer")
    away.run(page, "gem-core conform my")
    report = json.loads((away.work / "runs/conform-my/conformance.json").read_text())
    assert [(row["name"], row["status"]) for row in report["checks"]] == [
        (name, "passed") for name in CHECKS
    ]
