"""The page of the pretrained model is what its results say."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gem_core.errors import GemError

ROOT = Path(__file__).resolve().parents[2] / "benchmarks" / "real_model"


@pytest.fixture
def page(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    import real_model_page

    monkeypatch.setattr(real_model_page, "HERE", tmp_path)
    monkeypatch.setattr(real_model_page, "PAGE", tmp_path / "README.md")
    yield real_model_page
    del sys.modules["real_model_page"]


def test_the_page_is_written_from_the_results(page, tmp_path):
    page.write_page()
    assert (tmp_path / "README.md").read_text("utf-8") == (ROOT / "README.md").read_text("utf-8")
    names = {path.name for path in tmp_path.glob("*.png")}
    assert names == {path.name for path in ROOT.glob("*.png")}


def test_seeds_are_judged_together_and_against_their_own_starts(page):
    folders = sorted(page.RESULTS.glob("chain-sum-trl-gpu-hf-seed*"))
    kept = [page.Kept(page.RunDir(folder), folder) for folder in folders]
    evidence = page.weigh_runs(kept)
    starts = [one.run.result["before"]["success/mean"] for one in kept]
    found = {difference.control: difference.success for difference in evidence.differences}
    assert evidence.seeds == len(kept) == 3
    assert found["start_sampled"] == pytest.approx(sum(starts) / 3)


def test_a_run_without_its_greedy_evaluations_is_refused(page, tmp_path):
    folder = shutil.copytree(next(page.RESULTS.glob("simple-*-seed0")), tmp_path / "run")
    lines = (folder / "outcomes.jsonl").read_text("utf-8").splitlines()
    kept = [line for line in lines if '"greedy":true' not in line.replace(" ", "")]
    assert len(kept) < len(lines)
    (folder / "outcomes.jsonl").write_text("\n".join(kept) + "\n", "utf-8")
    with pytest.raises(GemError, match=r"lacks the evaluations .*set eval\.greedy"):
        page.weigh_runs([page.Kept(page.RunDir(folder), folder)])


def test_runs_of_different_recipes_are_not_seeds_of_one(page, tmp_path):
    folders = sorted(page.RESULTS.glob("simple-equations-trl-gpu-hf-seed*"))[:2]
    copied = shutil.copytree(folders[1], tmp_path / folders[1].name)
    text = (copied / "recipe.json").read_text("utf-8")
    changed = text.replace('"steps": 60', '"steps": 61')
    assert changed != text
    (copied / "recipe.json").write_text(changed, "utf-8")
    kept = [page.Kept(page.RunDir(folder), folder) for folder in (folders[0], copied)]
    with pytest.raises(GemError, match="different recipes"):
        page.weigh_runs(kept)
