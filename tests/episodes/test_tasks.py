"""The episodes that a run plays."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import MachineFactory, eval_task, require_step, step_tasks, train_task

GUESS = "guess-the-number-easy"


def test_steps_partition_the_run_and_groups_share_their_start():
    recipe = load_recipe(GUESS, "tiny", ["batch.episodes=12", "batch.group_size=4"])
    tasks = [task for step in range(5) for task in step_tasks(recipe, step)]
    assert [task.index for task in tasks] == list(range(60))
    assert tasks == [train_task(recipe, k) for k in range(60)]
    for first in range(0, 60, 4):
        assert len({(t.env, t.seed, t.group) for t in tasks[first : first + 4]}) == 1
    assert len({task.group for task in tasks}) == 15


def test_a_step_is_its_tasks_all_of_them_in_order():
    recipe = load_recipe(GUESS, "tiny", ["batch.episodes=3"])
    played = [Episode("", t.seed, index=t.index) for t in step_tasks(recipe, 1)]
    require_step(recipe, 2, played)
    for step, wrong in [(1, played), (2, played[:2]), (2, played[::-1]), (2, [*played, played[0]])]:
        with pytest.raises(GemError, match=f"Step {step} has the tasks {step * 3 - 3} to"):
            require_step(recipe, step, wrong)


def test_training_seeds_of_all_runs_and_evaluation_seeds_are_disjoint():
    recipes = [load_recipe(GUESS, "tiny", [f"seed={seed}"]) for seed in (0, 1, 999)]
    train = [train_task(recipe, k).seed for recipe in recipes for k in range(1000)]
    evaluation = [eval_task(recipe, k).seed for recipe in recipes for k in range(1000)]
    assert len(set(train)) == 3000 and not set(train) & set(evaluation)
    assert evaluation[:1000] == evaluation[1000:2000]  # every run is measured on the same seeds


def test_environment_mix_follows_the_weights():
    mix = "env=[{id='game:GuessTheNumber-v0-easy', weight=3}, {id='game:Mastermind-v0-easy'}]"
    recipe = load_recipe(GUESS, "tiny", [mix, "batch.group_size=2"])
    picked = Counter(train_task(recipe, k).env for k in range(8000))
    assert 0.72 < picked[0] / 8000 < 0.78
    assert all(train_task(recipe, 2 * k).env == train_task(recipe, 2 * k + 1).env for k in range(9))
    assert Counter(eval_task(recipe, k).env for k in range(100)) == {0: 50, 1: 50}


def test_an_evaluation_plays_its_own_environments():
    others = [
        "eval.env=[{id='game:Mastermind-v0-easy', max_turns=3}, {id='game:TowerofHanoi-v0-easy'},"
        "{id='game:GuessTheNumber-v0-hard', kwargs={max_number=20}}]"
    ]
    recipe = load_recipe(GUESS, "tiny", others)
    factory = pickle.loads(pickle.dumps(MachineFactory(recipe)))
    machines = [factory.evaluation(k) for k in range(6)]
    names = ["game:Mastermind-v0-easy", "game:TowerofHanoi-v0-easy", "game:GuessTheNumber-v0-hard"]
    assert [machine.env_id for machine in machines] == names * 2
    assert [machine.seed for machine in machines] == [-1, -1, -1, -2, -2, -2]
    assert machines[0].limits.max_turns == 3
    assert machines[2].env.unwrapped.max_number == 20
    assert factory.train(0).env_id == "game:GuessTheNumber-v0-easy"
    assert [eval_task(recipe, 1).split, train_task(recipe, 1).split] == ["eval", "train"]


def test_training_and_evaluation_share_no_question():
    questions = "env=[{id='math:GSM8K', kwargs={dataset='sample'}}]"
    factory = MachineFactory(load_recipe(GUESS, "tiny", [questions]))
    machines = {"train": map(factory.train, range(400)), "eval": map(factory.evaluation, range(60))}
    shown = {"train": set(), "eval": set()}
    for split, these in machines.items():
        for machine in these:
            machine.start()
            shown[split].add(machine.env.unwrapped.question)
    assert (len(shown["train"]), len(shown["eval"])) == (54, 6)
    assert not shown["train"] & shown["eval"]
    assert machine.env_id == "math:GSM8K"


def test_factory_builds_fresh_identical_machines(kit):
    recipe = load_recipe(GUESS, "tiny", ["env=[{id='game:GuessTheNumber-v0-easy', max_turns=2}]"])
    factory = MachineFactory(recipe)
    one = factory.train(4)
    other = factory.train(4)
    assert one.env is not other.env and one.limits.max_turns == 2
    one.start(), other.start()
    assert one.prompt_text == other.prompt_text and one.seed == 4
    assert pickle.loads(pickle.dumps(factory)).train(4).seed == 4


@pytest.mark.parametrize("index", [0, 1, 12345])
def test_tasks_do_not_depend_on_what_was_asked_before(index):
    recipe = load_recipe(GUESS, "tiny")
    assert train_task(recipe, index) == train_task(recipe, index)


def test_a_continued_run_plays_the_next_tasks_of_the_other():
    def seeds(first, last, start=0):
        recipe = load_recipe(GUESS, "tiny", ["batch.group_size=2", f"train.start={start}"])
        return [t.seed for step in range(first, last) for t in step_tasks(recipe, step)]

    assert seeds(0, 3) + seeds(0, 2, start=3) == seeds(0, 5)
