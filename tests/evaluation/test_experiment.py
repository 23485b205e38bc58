"""One whole experiment with the trainer under test: the same command and files for all five."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

import gem_core
from gem_core.evaluation.local import evaluation_episodes
from gem_core.evaluation.outcomes import as_text, read_outcomes
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import override
from gem_core.runs.tasks import step_tasks

STEPS = 2
QUESTIONS = "math:GSM8K"
MIX = ("game:GuessTheNumber-v0-easy", QUESTIONS)
"""The experiment trains on two environments at once."""
EVALUATION = ("game:TowerofHanoi-v0-easy", QUESTIONS)
"""It is evaluated on another one, and on other questions of the same data."""


def tables(env_ids):
    """The environments in TOML."""
    kwargs = {QUESTIONS: ", kwargs={dataset='sample'}"}
    return "[" + ", ".join(f"{{id='{name}'{kwargs.get(name, '')}}}" for name in env_ids) + "]"


def observations(part):
    """The first observations of one part of the questions."""
    env = gem_core.make(QUESTIONS, dataset="sample", part=part)
    return {env.reset(options={"index": index})[0] for index in env.item_indices()}


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, trainer_name):
    """``gem-core train`` for two small steps."""
    small = ("train.steps=2", "batch.episodes=8", "eval.episodes=20", "train.save_every=1")
    small += (f"env={tables(MIX)}", "model.tiny.warm_start_steps=40", "train.log_episodes=8")
    small += (
        f"eval.env={tables(EVALUATION)}",
        "eval.every=2",
        "eval.inside_episodes=6",
        "eval.greedy=true",
    )
    folder = tmp_path_factory.mktemp("experiment") / "run"
    argv = ["train", "guess-the-number-easy", "--profile", "tiny", "--trainer", trainer_name]
    for key in small:
        argv += ["--set", key]
    return [sys.executable, "-m", "gem_core.cli", *argv, "--run", str(folder)], folder


@pytest.fixture(scope="module")
def trained(arguments):
    """The finished run and what the command printed."""
    command, folder = arguments
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return RunDir(folder), done.stdout


def test_the_result_holds_both_evaluations_and_where_it_was_made(trained, trainer_name):
    run, _ = trained
    result = run.result
    assert (result["trainer"], result["steps"], result["n"]) == (trainer_name, STEPS, 20)
    for when in ("before", "after"):
        assert result[when]["episodes"] == 20
        assert result[when]["success/low"] <= result[when]["success/mean"]
    assert result["seconds"]["train"] > 0
    assert {"torch", "transformers"} <= set(result["versions"])
    environments = result["environments"]
    assert environments == run.info["environments"]
    assert [row["id"] for row in environments] == [*MIX, *EVALUATION]
    assert [row["sample"] for row in environments] == [False, True, False, True]
    assert "built-in SAMPLE" in trained[1]  # it is printed
    # The one of TowerofHanoi and some questions, and training played none of them.
    tasks = result["eval_tasks"]
    assert tasks["episodes"] == 20 and 2 <= tasks["distinct"] <= 7
    assert tasks["seen_in_training"] == 0
    assert tasks["compared"] == tasks["training_tasks"] == STEPS * 8
    evaluations = [(row["when"], row["step"], row["episodes"]) for row in run.evals()]
    assert evaluations == [("before", 0, 20), ("during", STEPS, 6), ("after", STEPS, 20)]
    for row in run.evals():
        assert row[f"env/{EVALUATION[0]}/episodes"] == row["episodes"] / 2
        assert row[f"env/{QUESTIONS}/episodes"] == row["episodes"] / 2


def test_the_outcomes_of_every_task_are_kept_sampled_and_greedy(trained):
    run, _ = trained
    outcomes = read_outcomes(run)
    assert list(outcomes) == [(when, greedy) for when in ("before", "after") for greedy in (0, 1)]
    for (when, greedy), line in outcomes.items():
        figures = run.result["greedy"][when] if greedy else run.result[when]
        assert len(line.success) == 20
        assert line.success.count("1") == round(20 * figures["success/mean"])
        assert line.engine.startswith("transformers ")
    greedy_recipe = override(run.recipe, ["eval.greedy=false", "eval.temperature=0"])
    again = evaluation_episodes(greedy_recipe, run.model)
    assert outcomes["after", True].success == as_text(e.success for e in again)


def test_questions_of_the_evaluation_are_held_out(trained):
    seen = {"train": set(), "eval": set()}
    for tags, episode in trained[0].episodes():
        if episode.env_id == QUESTIONS:
            seen[tags["split"]].add(episode.turns[0].observation)
    assert seen["train"] and seen["train"] <= observations("train")
    assert seen["eval"] and seen["eval"] <= observations("eval")


def test_every_step_has_the_common_metrics(trained):
    rows = trained[0].metrics()
    assert [row["step"] for row in rows] == [1, STEPS]
    for row in rows:
        assert row["episodes"] == 8
        assert {"success/mean", "reward/mean", "turns/mean", "time/rollout", "time/update"} <= set(
            row
        )


def test_every_environment_of_the_mix_has_metrics_of_its_own(trained):
    run, _ = trained
    names = ("success/mean", "reward/mean", "turns/mean")
    played = dict.fromkeys(MIX, 0)
    for row in run.metrics():
        for env_id in MIX:
            if f"env/{env_id}/episodes" in row:
                played[env_id] += row[f"env/{env_id}/episodes"]
                assert all(f"env/{env_id}/{name}" in row for name in names)
    expected = Counter(
        run.recipe.env[t.env].id for s in range(STEPS) for t in step_tasks(run.recipe, s)
    )
    assert played == expected and len(expected) == 2


def test_the_table_is_printed(trained, trainer_name):
    last = trained[1].rstrip().splitlines()[-1]
    assert last.split()[:2] == ["guess-the-number-easy", trainer_name]


def test_the_model_differs_from_where_it_began(trained):
    from safetensors.torch import load_file

    from gem_core.training.tiny import model_path

    run, _ = trained
    start = load_file(f"{model_path(run.recipe)}/model.safetensors")
    end = load_file(run.model / "model.safetensors")
    assert any(not start[name].equal(end[name]) for name in start)


def test_a_finished_run_is_left_alone(trained, arguments):
    run, _ = trained
    before = json.dumps(run.result)
    again = subprocess.run([*arguments[0], "--resume"], capture_output=True, text=True, timeout=300)
    assert again.returncode == 0
    assert "nothing to do" in again.stdout
    assert json.dumps(run.result) == before


def test_a_run_is_not_overwritten_without_the_option(trained, arguments):
    done = subprocess.run(arguments[0], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "gem-core: " in done.stderr.splitlines()[-1]
