"""What a finished run shows of keys that nothing else does: they act while a trainer trains.

`tests/contract/test_repeatable.py` trains with values that are not the defaults and checks all.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import asdict
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_conform.trained import episode_tokens
from gem_core.episodes.rollout import play_batch
from gem_core.evaluation.local import evaluation_episodes
from gem_core.policies.engine.policy import HFPolicy
from gem_core.runs.tasks import MachineFactory
from gem_core.training.tiny import model_path


def samples_as_the_core(run):
    """Equal weights draw equal tokens: step 1 is the one that the core plays by itself.

    All five trainers pass this, so that they play the same first step.
    """
    recipe = run.recipe
    folder = model_path(recipe)
    model = AutoModelForCausalLM.from_pretrained(folder)
    factory = MachineFactory(recipe, AutoTokenizer.from_pretrained(folder))
    machines = [factory.train(index) for index in range(recipe.batch.episodes)]
    policy = HFPolicy(model, factory.stop_ids, **asdict(recipe.sampling))
    _assert_same(run, (1, "train"), play_batch(machines, policy))


def evaluates_as_the_core(run):
    """Evaluations in training sample as those before and after it: the one that follows the last
    step plays what the evaluator plays with the model of the run.

    So its requests have the recipe's temperature, top_p, top_k, caps, stop tokens and seeds.
    """
    recipe = run.recipe
    episodes = evaluation_episodes(recipe, run.model, recipe.eval.inside_episodes)
    _assert_same(run, (recipe.train.steps, "eval"), episodes)


def _assert_same(run, place, episodes):
    logged = {key[2]: rows for key, rows in episode_tokens(run).items() if key[:2] == place}
    assert len(logged) == min(len(episodes), run.recipe.train.log_episodes)
    for episode in episodes[: len(logged)]:
        tokens = [segment.token_ids for segment in episode.segments]
        assert [ids for ids, _ in logged[episode.index]] == tokens, (place, episode.index)


def evaluates_at_its_steps(run):
    """An evaluation after each interval, of so many episodes."""
    recipe = run.recipe
    rows = [row for row in run.evals() if row["when"] == "during"]
    every = recipe.eval.every
    assert [row["step"] for row in rows] == [*range(every, recipe.train.steps + 1, every)]
    assert {row["episodes"] for row in rows} == {recipe.eval.inside_episodes}


def logs_its_episodes(run):
    """The first episodes of each step and each evaluation."""
    recipe = run.recipe
    logged = Counter((tags["step"], tags["split"]) for tags, _ in run.episodes())
    most = recipe.train.log_episodes
    steps = range(1, recipe.train.steps + 1)
    expected = {(step, "train"): min(most, recipe.batch.episodes) for step in steps}
    every = range(recipe.eval.every, recipe.train.steps + 1, recipe.eval.every)
    expected |= {(step, "eval"): min(most, recipe.eval.inside_episodes) for step in every}
    assert logged == expected


def trains_its_steps(run):
    """So many steps."""
    assert [row["step"] for row in run.metrics()] == [*range(1, run.recipe.train.steps + 1)]


def is_named(run):
    """The result has the name of the experiment."""
    assert run.result["name"] == run.recipe.name


IN_RUN = {
    "name": is_named,
    "sampling.temperature": samples_as_the_core,
    "sampling.top_p": samples_as_the_core,
    "sampling.top_k": samples_as_the_core,
    "eval.temperature": evaluates_as_the_core,
    "eval.top_p": evaluates_as_the_core,
    "eval.every": evaluates_at_its_steps,
    "eval.inside_episodes": evaluates_at_its_steps,
    "train.log_episodes": logs_its_episodes,
    "train.steps": trains_its_steps,
}
"""Key -> what shows it."""
