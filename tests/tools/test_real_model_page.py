"""The page of the pretrained model is what its results say."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gem_core.episodes.data import Episode, Turn
from gem_core.errors import GemError
from gem_core.evaluation.outcomes import read_outcomes
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe

ROOT = Path(__file__).resolve().parents[2] / "benchmarks" / "real_model"


@pytest.fixture
def page(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    import real_model_page

    monkeypatch.setattr(real_model_page, "HERE", tmp_path)
    monkeypatch.setattr(real_model_page, "PAGE", tmp_path / "README.md")
    document = shutil.copy(real_model_page.DOCUMENT, tmp_path / "document.md")
    monkeypatch.setattr(real_model_page, "DOCUMENT", Path(document))
    yield real_model_page
    for name in ("real_model_page", "kept_runs", "algorithms_section", "replay_section", "samples"):
        del sys.modules[name]


def test_the_pages_are_written_from_the_results(page, tmp_path):
    document = page.DOCUMENT.read_text("utf-8")
    page.DOCUMENT.write_text(document.replace("| learns", "| "), "utf-8")
    page.write_page()
    assert page.DOCUMENT.read_text("utf-8") == document
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


def test_estimators_of_one_recipe_are_compared_seed_by_seed(page, tmp_path):
    rebn, other = families(page, tmp_path)
    text = "\n".join(page.algorithms_section([rebn, other]))
    success = [read_outcomes(kept[0].run)["after", False].success for kept in (rebn, other)]
    means = [outcomes.count("1") / len(outcomes) for outcomes in success]
    rows = [line for line in text.splitlines() if line.startswith(("| rebn", "| reinforce"))]
    assert [f"| {mean:.3f} /" in row for mean, row in zip(means, rows, strict=True)] == [True] * 2
    assert f"| {means[0] - means[1]:+.3f} [" in rows[1]
    assert page.algorithms_section([rebn]) == []


def test_a_discount_that_an_estimator_ignores_is_no_difference(page):
    names = ("hotpot-qa-search-trl-seed0", "hotpot-qa-search-trl-grpo-seed0")
    rebn, grpo = ([page.Kept(page.RunDir(page.RESULTS / n), page.RESULTS / n)] for n in names)
    assert rebn[0].run.recipe.algorithm.gamma != grpo[0].run.recipe.algorithm.gamma
    text = "\n".join(page.algorithms_section([rebn, grpo]))
    assert "### hotpot-qa-search in trl, seeds 0" in text
    assert "| grpo |" in text


@pytest.mark.parametrize(
    "change", [('"steps": 60', '"steps": 61'), ('"gamma": 1.0', '"gamma": 0.5')]
)
def test_estimators_with_other_differences_are_not_compared(page, tmp_path, change):
    rebn, other = families(page, tmp_path, change)
    with pytest.raises(GemError, match="differ in more than the estimator"):
        page.algorithms_section([rebn, other])


def families(page, tmp_path, *changes):
    """Return a run and another seed of its recipe, under the name of another estimator."""
    folders = sorted(page.RESULTS.glob("simple-equations-trl-gpu-hf-seed*"))[:2]
    copied = shutil.copytree(folders[1], tmp_path / "other")
    text = (copied / "recipe.json").read_text("utf-8")
    for old, new in (
        ('"estimator": "rebn"', '"estimator": "reinforce"'),
        ('"seed": 1', '"seed": 0'),
        *changes,
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (copied / "recipe.json").write_text(text, "utf-8")
    return [[page.Kept(page.RunDir(folder), folder)] for folder in (folders[0], copied)]


def test_the_first_and_last_episodes_of_a_run_are_shown_with_their_turns(page, tmp_path):
    run = RunDir.create(tmp_path / "x-seed7", load_recipe("chain-sum", "tiny"), "trl")
    for step, answers in {1: "ab", 5: "cd", 9: "efg"}.items():
        run.log_episodes(
            step,
            [
                Episode("e", k, index=10 * step + k, turns=[Turn(0, "Ask\nme.", f"{word}\n{word}")])
                for k, word in enumerate(answers)
            ],
        )
    assert page.samples_section(run.path) == []
    sys.modules["samples"].keep_samples(run, run.path)
    text = "\n".join(page.samples_section(run.path))
    said = [line for line in text.splitlines() if line.startswith("  &gt; ")]
    assert said == [f"  &gt; {word}" for word in "aabbeeff"]
    assert text.count("step 1, not solved\n  Ask\n  me.\n") == 2 == text.count("step 9")
    assert "seed 7" in text
