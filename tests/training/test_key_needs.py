"""Keys that need another one: refused without it, dropped with it, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gem_compare.grid import ALGORITHMS, Cell
from gem_compare.recipes import differing_keys
from gem_core.advantages import (
    compute_advantages,
    estimator_needs,
    get_estimator,
    list_estimators,
)
from gem_core.advantages.batch import TurnBatch
from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import shipped
from gem_core.runs.recipe.key_needs import ENV_NEEDS, NEEDS, idle_keys
from gem_core.runs.recipe.load import (
    load_recipe,
    override,
    recipe_from_dict,
    stored_recipe,
    without_idle,
)
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, recipe_keys

GUESS = "guess-the-number-easy"
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TWO = "env=[{id='game:GuessTheNumber-v0-easy'}, {id='game:Hangman-v0-easy'}]"
TOOLS = ("env.0.tools=['python']", "context.template=chat")
STARTED = ["model.path=org/name", "model.warm_start.steps=3"]
COMPACT = ["context.history=compact", "context.compact.budget=60"]
IDLE = {
    "context.system": ("'be brief'", ["context.template=chat"]),
    "context.custom.first": ("'Play: {observation}'", ["context.template=custom"]),
    "context.custom.next": ("'Then: {observation}'", ["context.template=custom"]),
    "context.custom.close": ("'<|im_end|>'", ["context.template=custom"]),
    "context.window": ("3", ["context.history=window"]),
    "context.compact.budget": ("60", ["context.history=compact"]),
    "context.compact.prompt": ("'Sum up.'", COMPACT),
    "context.compact.max_tokens": ("4", COMPACT),
    "context.compact.trained": ("false", COMPACT),
    "limits.max_turns": ("3", ["env.0.max_turns=2"], True),
    "model.revision": ("'v2'", ["model.path=org/name"]),
    "model.tiny.layers": ("3", ["model.path=org/name"], True),
    "model.tiny.expert_noise": ("0.1", ["model.tiny.warm_start_steps=0"], True),
    "model.tiny.habit": ("'expert'", ["model.tiny.warm_start_steps=0"], True),
    "model.tiny.teacher": ("'random'", ["model.tiny.warm_start_steps=0"], True),
    "model.warm_start.steps": ("3", ["model.path=org/name"]),
    "model.warm_start.batch": ("3", STARTED),
    "model.warm_start.lr": ("1e-6", STARTED),
    "model.warm_start.warmup": ("1", STARTED),
    "model.warm_start.teacher": ("'expert'", STARTED),
    "model.warm_start.noise": ("0.5", STARTED),
    "model.warm_start.habit": ("'expert'", STARTED),
    "model.lora.alpha": ("8.0", ["model.lora.rank=4"]),
    "model.lora.targets": ("['q_proj']", ["model.lora.rank=4"]),
    "algorithm.gamma": ("0.5", ["algorithm.estimator=grpo", "batch.group_size=2"], True),
    "algorithm.lam": ("0.5", ["algorithm.estimator=gae"]),
    "algorithm.kl_in": ("'reward'", ["algorithm.kl_coef=0.1"]),
    "algorithm.rollout_cap": ("3.0", ["algorithm.rollout_correction=tis"]),
    "algorithm.loss_constant": ("9", ["algorithm.loss_aggregation=constant"]),
    "algorithm.critic_lr": ("0.5", ["algorithm.estimator=gae"]),
    "algorithm.value_clip": ("0.5", ["algorithm.estimator=gae"]),
    "batch.micro_batch": ("3", ["batch.max_tokens_per_device=999"], True),
    "sampling.support": ("drawn", ["sampling.top_k=5"]),
    "sampling.refresh_turns": ("2", ["sampling.staleness=1"]),
    "eval.inside_episodes": ("3", ["eval.every=1"]),
    "eval.greedy": ("true", ["eval.temperature=0"], True),
    "eval.top_p": ("0.9", ["eval.temperature=0"], True),
    "track.project": ("'mine'", ["track.to=['wandb']"]),
    "workers.address": ("'auto'", ["workers.backend=ray"]),
    "workers.number": ("3", ["workers.backend=process"]),
    "workers.max_restarts": ("3", ["workers.backend=process"]),
    "workers.restart": ("'fail'", ["workers.backend=process"]),
    "workers.deadline_s": ("3.0", ["workers.backend=thread"]),
    "env.0.weight": ("3.0", [TWO]),
    "env.0.tool_use.calls": ("3", ["env.0.tools=['python']"]),
    "env.0.tool_use.native": ("true", TOOLS),
    "env.0.tool_use.instructions": ("false", [*TOOLS, "env.0.tool_use.native=true"], True),
}
"""Key -> a value, overrides with which it has an effect (third: without which), see `sides`."""


def sides(key):
    """A value of the key, overrides with which it has no effect, and with which it has one."""
    value, overrides, *reverse = IDLE[key]
    also = ["env.0.tools=['python']"] if key == "env.0.tool_use.native" else []
    also = list(TOOLS) if key == "env.0.tool_use.instructions" else also
    without, with_ = (overrides, also) if reverse else (also, overrides)
    return f"{key}={value}", list(without), list(with_)


def test_every_need_is_tried():
    """Each key of a need is in the table above, of a table one."""
    needed = {key for need in NEEDS for key in need.keys.split()}
    needed |= {f"env.0.{key}" for need in ENV_NEEDS for key in need.keys.split()}
    tables = {"model.tiny", "env.0.tool_use", "context.compact"}
    warm_start = {"model.tiny.warm_start_batch", "model.tiny.warm_start_lr"}
    for table in tables:
        assert any(key.startswith(f"{table}.") for key in IDLE)
    assert needed - tables - warm_start <= IDLE.keys()
    assert {key for key in IDLE if not any(key.startswith(f"{t}.") for t in tables)} <= needed


def test_every_need_is_about_keys_of_the_recipe():
    known = {*recipe_keys(), "model.tiny", "context.compact"}
    assert {key for need in NEEDS for key in need.keys.split()} <= known
    of_env = {*recipe_keys(EnvConfig), "tool_use"}
    assert {key for need in ENV_NEEDS for key in need.keys.split()} <= of_env


@pytest.mark.parametrize("key", IDLE)
def test_a_key_without_effect_is_refused_and_says_what_it_needs(key):
    change, without, with_ = sides(key)
    with pytest.raises(RecipeError, match=rf"^{key} = .* it goes with .*\. Leave it out, or set"):
        load_recipe(GUESS, "tiny", [*without, change])
    load_recipe(GUESS, "tiny", [*with_, change])


@pytest.mark.parametrize("key", IDLE)
def test_in_one_layer_too(key):
    """What a file or a program says, with no override after it."""
    change, without, with_ = sides(key)
    stored = msgspec.to_builtins(load_recipe(GUESS, "tiny", [*with_, change]))
    recipe = stored_recipe(_merged(stored, without))
    if key in {idle.key for idle in idle_keys(recipe)}:
        with pytest.raises(RecipeError, match=rf"^{key} = "):
            recipe_from_dict(recipe.to_dict())
    assert idle_keys(without_idle(recipe)) == []


def _merged(data, overrides):
    from gem_core.runs.recipe.files import merge_overrides

    return merge_overrides(data, overrides)


def test_defaults_that_are_written_out_are_no_error():
    """A whole recipe with all defaults: `to_dict` writes every key."""
    data = msgspec.to_builtins(Recipe(name="x", env=[EnvConfig(id="game:Hangman-v0-easy")]))
    assert recipe_from_dict(data).algorithm.rollout_cap == 2.0


def test_an_override_takes_the_keys_along_that_need_what_it_takes_away():
    keys = ["algorithm.estimator=gae", "algorithm.critic_lr=0.25", "algorithm.lam=0.5"]
    with_critic = load_recipe(GUESS, "tiny", keys)
    without = override(with_critic, ["algorithm.estimator=rebn"])
    assert without.algorithm.critic_lr is None and without.algorithm.lam == 0.95
    with pytest.raises(RecipeError, match=r"^algorithm\.critic_lr = 0\.5 has no effect"):
        override(with_critic, ["algorithm.estimator=rebn", "algorithm.critic_lr=0.5"])
    grpo = load_recipe(GUESS, "tiny", ["algorithm.estimator=grpo", "batch.group_size=2"])
    assert grpo.algorithm.gamma == 1.0  # the baseline's 0.9 would not be read
    own = load_recipe(GUESS, "tiny", ["model.path=org/name", "model.tiny.layers=2"])
    assert own.model.tiny == type(own.model.tiny)()


def test_what_a_file_sets_in_vain_is_refused_whatever_is_overridden(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name="mine"\nenv=[{id="game:Hangman-v0-easy"}]\n[context]\nsystem="x"\n')
    for overrides in ([], ["seed=3"], ["algorithm.gamma=0.5"]):
        with pytest.raises(RecipeError, match=r"^context\.system"):
            load_recipe(path, None, overrides)
    load_recipe(path, None, ["context.template=chat"])


def test_a_source_of_a_key_that_does_not_exist_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    head = 'name="mine"\nenv=[{id="game:Hangman-v0-easy"}]\n[sources]\n'
    path.write_text(f'{head}"algorithm.gamm" = "ours"')
    with pytest.raises(RecipeError, match=r"'algorithm\.gamm'\. Did you mean 'algorithm\.gamma'"):
        load_recipe(path)
    path.write_text(f'{head}"algorithm.gamma" = "ours"\n"env.0.kwargs.words" = "ours"')
    load_recipe(path)


def test_a_directory_has_no_revision(tmp_path):
    with pytest.raises(RecipeError, match=r"^model\.revision = .*a directory has no"):
        load_recipe(GUESS, "tiny", [f"model.path={tmp_path}", "model.revision=v2"])


def test_shipped_recipes_and_all_cells_of_comparisons_load():
    for name in shipped("baselines"):
        for profile in (None, *shipped("profiles")):
            load_recipe(name, profile)
            for algorithm in ALGORITHMS:
                assert idle_keys(Cell(name, "trl", algorithm, 0).recipe(profile)) == []


def test_runs_from_before_are_read_and_are_the_same_experiment(tmp_path):
    """Their gamma is written down where grpo does not read it."""
    old = next(p for p in sorted(BENCHMARKS.rglob("grpo/*/recipe.json")) if "trl" in p.parts)
    stored = RunDir(old.parent).recipe
    assert "algorithm.gamma" in {idle.key for idle in idle_keys(stored)}
    assert differing_keys(stored, without_idle(stored)) == []
    assert override(stored, ["seed=5"]).algorithm.gamma == 1.0
    run = RunDir.create(tmp_path / "run", without_idle(stored), "trl")
    (run.path / "recipe.json").write_text(json.dumps(stored.to_dict()))
    RunDir.create(tmp_path / "run", without_idle(stored), "trl", "resume")  # as before


def own_estimators():
    """gem-core's own: a test that was collected before may have registered further ones."""
    names = [name for name in list_estimators() if "acme" not in name]
    return [name for name in names if get_estimator(name).__module__.startswith("gem_core.")]


@pytest.mark.parametrize("name", ["gamma", "lam"])
@pytest.mark.parametrize("estimator", own_estimators())
def test_what_an_estimator_ignores_is_what_does_not_change_it(estimator, name):
    """With a critic, its targets read both."""
    rng = np.random.default_rng(0)
    batch = TurnBatch(
        rewards=rng.normal(size=12),
        episode=np.repeat(np.arange(4), 3),
        group=np.repeat([0, 1], 6),
        values=rng.normal(size=12),
        bootstrap=np.zeros(12),
    )
    one, other = (
        compute_advantages(estimator, batch, **{"gamma": 0.9, "lam": 0.9, name: value})
        for value in (0.3, 0.9)
    )
    assert np.array_equal(one, other) == (name in estimator_needs(estimator).ignores)
