"""The evaluator: fixed tasks, repeatable figures, an interval."""

from __future__ import annotations

import pytest

from gem_core.episodes.data import Episode, StopReason, Turn
from gem_core.errors import GemError
from gem_core.evaluation import evaluate
from gem_core.evaluation.local import evaluation_episodes, summarise
from gem_core.runs.recipe.load import load_recipe, override


def test_figures_repeat_exactly(recipe, model_dir):
    first, again = (evaluate(recipe, model_dir, 40) for _ in range(2))
    assert first.pop("seconds") > 0
    again.pop("seconds")
    spent = "time/env"
    first.pop(spent), again.pop(spent)
    assert first == again
    assert first["episodes"] == 40
    assert first["success/low"] <= first["success/mean"] <= first["success/high"]


def test_the_tasks_are_those_of_the_evaluation(recipe, model_dir):
    episodes = evaluation_episodes(recipe, model_dir, 5)
    assert [e.seed for e in episodes] == [-1, -2, -3, -4, -5]


def test_the_environments_of_the_evaluation_are_played(recipe, model_dir):
    other = "game:TowerofHanoi-v0-easy"
    tables = f"eval.env=[{{id='{other}'}}, {{id='{recipe.env[0].id}', kwargs={{max_number=3}}}}]"
    episodes = evaluation_episodes(override(recipe, [tables]), model_dir, 5)
    assert [e.env_id for e in episodes] == [other, recipe.env[0].id, other, recipe.env[0].id, other]
    assert "from 1 to 3" in episodes[1].turns[0].observation


def test_the_recipe_gives_the_count(recipe, model_dir):
    from msgspec.structs import replace

    few = replace(recipe, eval=replace(recipe.eval, episodes=3))
    assert evaluate(few, model_dir)["episodes"] == 3


def test_summary_counts_successes():
    episodes = [Episode("e", k, turns=[Turn(0, "", "", reward=1.0)]) for k in range(10)]
    for episode in episodes[:8]:
        episode.success = True
    found = summarise(episodes)
    assert found["success/mean"] == 0.8
    assert (round(found["success/low"], 4), round(found["success/high"], 4)) == (0.4902, 0.9433)


def test_a_broken_environment_fails_the_evaluation(model_dir, tmp_path):
    from gem_core.env.registration import register

    register("test:Broken-v0", "gem_parity.frozen:_Scripted", turns=1, dense=0, raises=1)
    path = tmp_path / "r.toml"
    path.write_text('name = "r"\n[[env]]\nid = "test:Broken-v0"\n[context]\ntemplate = "no"\n')
    recipe = load_recipe(path, "tiny", ["model.tiny.warm_start_steps=0"])
    with pytest.raises(GemError, match="scripted fault"):
        evaluate(recipe, model_dir, 4)


def test_a_score_with_failed_episodes_is_recorded_with_a_warning(recipe, model_dir, tmp_path):
    from gem_core.env.registration import register
    from gem_core.runs.directory.run_dir import RunDir
    from gem_core.runs.resolved import ResolvedRun
    from gem_core.runs.splits import run_envs
    from gem_core.runs.trainers import get_trainer
    from gem_core.training import experiment

    register("test:Fails-v0", "gem_parity.frozen:_Scripted", turns=1, dense=0, raises=1)
    mixed = f"eval.env=[{{id='{recipe.env[0].id}'}}, {{id='test:Fails-v0'}}]"
    recipe = override(recipe, [mixed, "eval.episodes=4"])
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    resolved = ResolvedRun(
        recipe=recipe,
        trainer=get_trainer("trl"),
        native={},
        envs=run_envs(recipe),
        environments=(),
    )
    lines: list[str] = []
    figures = experiment._evaluate(run, resolved, model_dir, "before", 0, lines.append)
    assert figures["stop/env_error"] == 0.5
    assert lines[0].startswith("Before: success")
    assert "failed count as not solved (env_error 2)" in lines[1]


def test_reasons_are_kept(recipe, model_dir):
    episodes = evaluation_episodes(recipe, model_dir, 20)
    assert {e.stop_reason for e in episodes} <= {StopReason.TERMINATED, StopReason.INVALID_FORMAT}
