"""From the wheel, away from the checkout: a package, an evaluation, the viewer, an adapter.

By the lines of the pages; what needs torch is in ``tests/examples/test_from_wheel.py``.
"""

from __future__ import annotations

import json


def exported(away, unpacked):
    """Return the data of the page that the viewer has exported, as text."""
    return json.dumps(unpacked((away.work / "report.html").read_text(encoding="utf-8")))


def test_gem_core_is_that_of_the_wheel(away):
    program = "import gem_core, gem_conform, sys; print(gem_core.__file__, gem_conform.__file__)"
    for file in away.command("python", "-c", program).split():
        assert file.startswith(str(away.scripts.parent)), file


def test_a_package_of_ones_own_is_written_installed_and_checked(away):
    page = "docs/write/README.md"
    away.run(page, "gem-core init my-envs")
    away.run(page, "pip install -e my-envs")
    assert "all 19 checks passed" in away.run(page, "gem-core check my:Change-v0")
    shown = away.run(page, "gem-core show my-envs/recipe.toml", "--episodes", "5")
    assert "You may use tools" in shown


def test_scripted_players_are_evaluated_and_the_viewer_exports_it(away, unpacked):
    line = "gem-core eval 'game:*-easy' --player expert --tasks 200"
    few = ("--tasks", "2", "--out", "runs/compare/easy")
    said = away.run("docs/evaluation.md", line, *few)
    assert "game:GuessTheNumber-v0-easy" in said
    away.run("docs/view.md", "gem-core view runs/compare --export report.html")
    assert "game:GuessTheNumber-v0-easy" in exported(away, unpacked)


def test_an_adapter_is_written_installed_and_checked(away):
    page = "docs/write/adapter.md"
    away.run(page, "gem-core init my-trainer --trainer")
    away.command("pip", "install", "--quiet", "--no-deps", "./my-trainer")  # without torch
    away.run(page, "gem-core conform my --only keys values unknown-keys")
    report = json.loads((away.work / "runs/conform-my/conformance.json").read_text())
    assert [row["status"] for row in report["checks"]] == ["passed"] * 3
