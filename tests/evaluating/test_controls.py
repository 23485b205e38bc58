"""Controls without a model: random legal actions, the best constant answer, the best sequence."""

from __future__ import annotations

import asyncio
import json
from random import Random
from types import SimpleNamespace

import pytest

import gem_core
from gem_core.cli import main
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError, RunError
from gem_core.evaluation.controls import blind, players
from gem_core.evaluation.controls.file import PLAYERS, read_controls
from gem_core.evaluation.controls.play import play_controls, read_trained
from gem_core.evaluation.evaluation import run_evaluation
from gem_core.evaluation.folder import EvalDir
from gem_core.evaluation.outcomes import as_text, task_means
from gem_core.evaluation.progress import no_progress
from gem_core.runs.recipe.load import load_recipe

from .common import GAME

HANOI = "tower-of-hanoi-easy"


def played(out, name, overrides=(), **options):
    trained = read_trained(name, "tiny", overrides)
    return play_controls(trained, None, out, progress=no_progress, **options)


@pytest.fixture(scope="module")
def hanoi(tmp_path_factory):
    out = tmp_path_factory.mktemp("hanoi")
    return played(out, HANOI, ["eval.episodes=40"], samples=2), out


def test_one_fixed_sequence_solves_a_game_with_one_initial_state(hanoi):
    controls, _ = hanoi
    assert controls.outcomes["sequence"] == ["1" * 40]
    assert controls.outcomes["constant"] == ["0" * 40]
    assert [len(controls.outcomes[name]) for name in PLAYERS] == [2, 1, 1]
    assert controls.success["random"] < 0.1 and controls.success["sequence"] == 1.0
    assert controls.tasks == [40] and controls.start is None and controls.commit


def test_the_file_has_what_was_played(hanoi):
    controls, out = hanoi
    assert read_controls(out) == read_controls(out / "controls.json") == controls
    rows = [json.loads(line) for line in (out / "random" / "items.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in rows[:40]] == [-1 - k for k in range(40)]
    by_item = {row["item"]: row["success"] for row in rows}
    assert controls.outcomes["random"] == [
        as_text(by_item[k] for k in range(first, first + 40)) for first in (0, 40)
    ]


def test_a_damaged_file_is_refused(hanoi, tmp_path):
    with pytest.raises(RunError, match="gem-core controls"):
        read_controls(tmp_path)
    text = (hanoi[1] / "controls.json").read_text().replace('"tasks": [', '"tasks": ["x", ', 1)
    (tmp_path / "controls.json").write_text(text)
    with pytest.raises(RunError, match="damaged"):
        read_controls(tmp_path)


def test_resuming_gives_the_same(hanoi):
    controls, out = hanoi
    assert played(out, HANOI, ["eval.episodes=40"], samples=2, if_exists="resume") == controls


def test_the_best_constant_is_the_commonest_answer_of_the_training_tasks():
    """Counted without a player: the answers of the training tasks themselves."""
    recipe = load_recipe("letter-counting", "tiny")
    fit = blind.fit_blind(recipe)["rg:letter_counting"]
    arena = blind.Arena(recipe, [0])
    answers = [actions[0] for actions in arena.episodes("expert")]
    most = max(answers.count(answer) for answer in answers)
    assert fit.constant_success == most / len(answers)
    assert answers.count(fit.constant) == most
    assert fit.sequence == (fit.constant,)  # one turn: there is no other sequence


def test_a_fit_plays_training_tasks_only(monkeypatch):
    recipe = load_recipe("guess-the-number-easy", "tiny", ["seed=3"])
    seeds = []
    reset = gem_core.Env.reset

    def noted(env, *, seed=None, options=None):
        seeds.append(seed)
        return reset(env, seed=seed, options=options)

    monkeypatch.setattr(gem_core.Env, "reset", noted)
    blind.fit_blind(recipe)
    assert len(set(seeds)) == 200 and min(seeds) == 3 * 10**9


def test_a_blind_player_reads_no_observation():
    """A machine that has nothing but the id of its environment and its turn is enough for it."""
    policy = players._Blind({GAME: ["a", "b"]})
    machine = SimpleNamespace(env_id=GAME, turn=3)
    assert asyncio.run(policy.complete(Request([], 1, machine, seed=0))).text == "b"


def test_a_fixed_sequence_is_repeated_from_its_beginning(tmp_path):
    trained = read_trained("guess-the-number-easy", "tiny", ["eval.episodes=3"])
    player = players.BlindPlayer("x", {GAME: ["\\boxed{1}", "\\boxed{2}"]})
    run_evaluation(trained.subject, [3], player, tmp_path / "x", progress=no_progress)
    for _, episode in EvalDir(tmp_path / "x").run.episodes():
        actions = [turn.action for turn in episode.turns]
        assert actions == ["\\boxed{1}", "\\boxed{2}", "\\boxed{1}", "\\boxed{2}"][: len(actions)]


def test_random_actions_are_legal_and_leave_the_environment_as_it_was():
    env = gem_core.make("game:TowerofHanoi-v0-easy")
    env.reset(seed=0)
    rng = Random(0)
    illegal = 0
    for _ in range(30):
        before = env.get_state()
        action = players.random_legal_action(env, rng)
        assert env.get_state() == before
        *_, terminated, truncated, info = env.step(action)
        illegal += "error" in info
        if terminated or truncated:
            env.reset(seed=1)
    assert illegal == 0


def test_environments_that_are_not_trained_on_get_what_fits_all_training_tasks():
    other = "game:GuessTheNumber-v0-hard"
    recipe = load_recipe("guess-the-number-easy", "tiny", [f"eval.env=[{{id='{other}'}}]"])
    fit = blind.fit_blind(recipe)
    assert list(fit) == [other] and fit[other].tasks == blind.FAST.tasks


def test_ids_have_no_training_tasks():
    with pytest.raises(GemError, match="training tasks"):
        read_trained(GAME)


def test_the_command(tmp_path, capsys):
    command = ["controls", "guess-the-number-easy", "--profile", "tiny", "--players-only"]
    command += ["--episodes", "10", "--out", str(tmp_path / "out")]
    assert main(["-q", *command]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in PLAYERS) and "start" not in shown
    assert main([*command, "--json", "--resume"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tasks"] == [10] and set(printed["outcomes"]) == set(PLAYERS)
    assert main(command) == 2  # it is there already


@pytest.mark.parametrize("texts", [[], ["01", "0"], ["02"], [""]])
def test_outcomes_are_texts_of_one_length(texts):
    with pytest.raises(GemError, match="Outcomes"):
        task_means(texts)
