"""Recipes: errors name the key, and layers are merged in a fixed order."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from gem_adapters.native_keys import refuse_keys
from gem_core.errors import GemError, RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten, merge, shipped
from gem_core.runs.recipe.load import load_recipe, override, recipe_from_dict
from gem_core.runs.recipe.recipe import EnvConfig, get_key, recipe_keys

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
GUESS = "guess-the-number-easy"
GAME = "game:GuessTheNumber-v0-easy"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.gama=1", "Unknown recipe key 'algorithm.gama'. Did you mean 'algorithm.gamma'"),
        ("algoritm.gamma=1", "Did you mean 'algorithm"),
        ("batch.episode=8", "Did you mean 'batch.episodes'"),
        ("model.tiny.layer=3", "Did you mean 'model.tiny.layers'"),
        ("env=[{idd='x'}]", r"Unknown recipe key 'env.0.idd'. Did you mean 'env.0.id'"),
        ("algorithm.lr=fast", "algorithm.lr: Expected `float`, got `str`"),
        ("algorithm.kl_in=somewhere", "algorithm.kl_in: Invalid enum value 'somewhere'"),
        (
            "eval.engine=vlm",
            r"eval.engine: Invalid enum value 'vlm'; it is .*'sglang'. Did you mean 'vllm'\?$",
        ),
        ("eval.engine=tgi", r"eval.engine: .* it is 'hf', 'trainer', 'vllm' or 'sglang'\.$"),
        ("track.to=['wandbb']", r"track.to.0: .*'mlflow' or 'trackio'. Did you mean 'wandb'\?"),
        ("algorithm.estimator=rebm", "Did you mean 'rebn'"),
        ("context.template=qwen_game", "Did you mean 'qwen3_game'"),
        ("env=[{id='game:GuesTheNumber-v0-easy'}]", "Did you mean 'game:GuessTheNumber-v0-easy'"),
        ("batch.group_size=7", "batch.episodes: 96 is not a multiple of batch.group_size = 7"),
        ("algorithm.minibatches=97", "algorithm.minibatches: must be at most batch.episodes = 96"),
        ("algorithm.estimator=grpo", "batch.group_size: algorithm.estimator = 'grpo'"),
        ("algorithm.gamma=1.5", "algorithm.gamma: must be at most 1"),
        ("algorithm.loss_aggregation=constant", "algorithm.loss_constant: must be set with"),
        ("seed=-1", "seed: must be at least 0"),
        ("sampling.temperature=0", "sampling.temperature: must be greater than 0"),
        ("nonsense", "write dotted.key=value"),
        ("env=[]", "env: a recipe needs at least one"),
    ],
)
def test_errors_name_the_key(override, message):
    with pytest.raises(GemError, match=message):
        load_recipe(GUESS, "tiny", [override])


def test_native_keys_may_have_hydras_prefixes():
    keys = ["trainer.verl.+a.b_c=sdpa", "trainer.verl.++d=1", "trainer.verl.~e=none"]
    table = load_recipe(GUESS, "tiny", keys).trainer["verl"]
    assert table == {"+a": {"b_c": "sdpa"}, "++d": 1, "~e": "none"}


def test_the_engine_of_the_evaluations_is_stored():
    recipe = load_recipe(GUESS, "tiny", ["eval.engine=vllm"])
    assert recipe_from_dict(recipe.to_dict()).eval.engine == "vllm"
    assert recipe_from_dict(load_recipe(GUESS, "tiny").to_dict()).eval.engine == "hf"


def test_what_vllm_would_not_do_is_refused_by_name():
    by_vllm = ["eval.engine=vllm"]
    for temperature in (0, 0.01, 1):
        load_recipe(GUESS, "tiny", [*by_vllm, f"eval.temperature={temperature}"])
    with pytest.raises(RecipeError, match=r"eval.temperature: .* 0 or at least 0.01"):
        load_recipe(GUESS, "tiny", [*by_vllm, "eval.temperature=0.009"])
    load_recipe(GUESS, "tiny", ["eval.temperature=0.009"])
    parallel = ["hardware.gpus_per_node=2", "hardware.engine_tensor_parallel=2"]
    with pytest.raises(RecipeError, match=r"hardware.engine_tensor_parallel: must be 1 with"):
        load_recipe(GUESS, "paper", [*by_vllm, *parallel])
    load_recipe(GUESS, "paper", parallel)


@pytest.mark.parametrize(
    "override",
    [
        "name=''",
        "seed=1000",
        "env.0.weight=0",
        "env.0.weight=-1",
        "env.0.weight=nan",
        "env.0.max_turns=0",
        "env.0.kwargs.max_nmber=9",
        "env.0.kwargs.max_number=nine",
        "env.0.kwargs.max_number=inf",
        "context.window=0",
        "limits.max_tokens_per_turn=0",
        "limits.max_turns=0",
        "limits.max_context_tokens=-5",
        "limits.max_episode_tokens=0",
        "limits.turn_deadline_s=0",
        "limits.episode_deadline_s=-1",
        "model.path=''",
        "model.tiny.layers=0",
        "model.tiny.heads=0",
        "model.tiny.hidden=30",
        "model.tiny.vocab=10",
        "model.tiny.max_positions=0",
        "model.tiny.warm_start_steps=-1",
        "model.tiny.warm_start_batch=0",
        "model.tiny.warm_start_lr=inf",
        "model.tiny.expert_noise=1.1",
        "algorithm.options.epz=1",
        "algorithm.options.eps=small",
        "algorithm.options.eps=nan",
        "algorithm.options.per_env=1",
        "algorithm.gamma=nan",
        "algorithm.lam=-0.1",
        "algorithm.clip_low=-0.2",
        "algorithm.clip_low=1.1",
        "algorithm.clip_high=0",
        "algorithm.kl_coef=-1",
        "algorithm.kl_coef=inf",
        "algorithm.entropy_coef=nan",
        "algorithm.epochs=0",
        "algorithm.minibatches=0",
        "algorithm.loss_constant=0",
        "algorithm.lr=0",
        "algorithm.lr=inf",
        "algorithm.lr=nan",
        "algorithm.warmup_steps=-1",
        "algorithm.betas=[2, 0.9]",
        "algorithm.betas=[0.9, 1.0]",
        "algorithm.betas.1=-0.5",
        "algorithm.weight_decay=-1",
        "algorithm.max_grad_norm=0",
        "algorithm.critic_lr=0",
        "batch.episodes=0",
        "batch.group_size=0",
        "batch.micro_batch=0",
        "sampling.temperature=nan",
        "sampling.top_p=0",
        "sampling.top_p=1.5",
        "sampling.top_k=0",
        "sampling.top_k=-2",
        "eval.episodes=-1",
        "eval.every=-1",
        "eval.inside_episodes=0",
        "eval.temperature=-1",
        "train.steps=0",
        "train.start=-1",
        "train.save_every=-1",
        "train.keep_checkpoints=0",
        "train.log_episodes=-1",
        "hardware.nodes=0",
        "hardware.gpus_per_node=0",
        "trainer.trll.x=1",
        "trainer.trl=1",
    ],
)
def test_values_out_of_range_are_refused_by_key(override):
    key = re.sub(r"\.(epz|max_nmber|x)$", "", override.partition("=")[0])
    with pytest.raises(GemError, match="^" + re.escape(key)):
        load_recipe(GUESS, "tiny", [override])


@pytest.mark.parametrize("profile", ["paper", "small"])
def test_a_profile_for_gpus_evaluates_as_gems_own_commands_do(profile):
    recipe = load_recipe(GUESS, profile)
    assert (recipe.eval.temperature, recipe.eval.top_p) == (0.6, 0.95)
    assert all("gem-llm" in recipe.sources[key] for key in ("eval.temperature", "eval.top_p"))


def test_an_environment_is_changed_by_its_number():
    tables = "env=[{id='game:GuessTheNumber-v0-easy'}, {id='game:TowerofHanoi-v0-easy', weight=3}]"
    changes = ["env.1.max_turns=3", "env.0.kwargs.max_number=7", "algorithm.betas.0=0.5"]
    recipe = load_recipe(GUESS, "tiny", [tables, *changes])
    assert [env.max_turns for env in recipe.env] == [None, 3]
    assert [env.weight for env in recipe.env] == [1.0, 3.0]
    assert [env.kwargs for env in recipe.env] == [{"max_number": 7}, {}]
    assert recipe.algorithm.betas == (0.5, 0.95)
    assert override(recipe, ["env.1.max_turns=4"]).env[1].max_turns == 4
    with pytest.raises(RecipeError, match=r"env.2: the recipe has 2 env tables, env.0 to env.1"):
        override(recipe, ["env.2.max_turns=3"])
    with pytest.raises(RecipeError, match=r"write env.0.max_turns=3"):
        override(recipe, ["env.max_turns=3"])


def test_an_evaluation_can_have_environments_of_its_own():
    hard = "game:GuessTheNumber-v0-hard"
    default = load_recipe(GUESS, "tiny")
    assert default.eval.env == [] and default.envs("eval") == default.envs("train") == default.env
    recipe = load_recipe(GUESS, "tiny", [f"eval.env=[{{id='{hard}'}}]", "eval.env.0.max_turns=3"])
    assert recipe.envs("train") == default.env
    assert [(env.id, env.max_turns) for env in recipe.envs("eval")] == [(hard, 3)]
    assert recipe_from_dict(recipe.to_dict()) == recipe
    assert load_recipe(GUESS, None, [f"eval.env.0.id={hard}"]).eval.env == [EnvConfig(id=hard)]
    added = override(default, [f"eval.env.0.id={hard}", f"eval.env.1.id={hard}", "eval.every=1"])
    assert [env.id for env in added.eval.env] == [hard, hard] and added.eval.every == 1
    assert override(recipe, ["eval.env.0.kwargs.max_number=30"]).eval.env[0].kwargs == {
        "max_number": 30
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["eval.env=[{id='game:GuesTheNumber-v0-hard'}]"], "eval.env.0.id: .*Did you mean 'game:"),
        (["eval.env.0.idd=x"], "Unknown recipe key 'eval.env.0.idd'. Did you mean 'eval.env.0.id'"),
        (["eval.emv=[]"], "Unknown recipe key 'eval.emv'. Did you mean 'eval.env'"),
        (["eval.env.0.max_turns=3"], "eval.env.0: Object missing required field `id`"),
        (["eval.env.1.id=x"], "eval.env.1: the recipe has no eval.env"),
        (["eval.env.max_turns=3"], "eval.env: .*: write eval.env.0.max_turns=3"),
        ([f"eval.env.0.id={GAME}", "eval.env.0.max_turns=0"], "eval.env.0.max_turns: must be at"),
        ([f"eval.env.0.id={GAME}", "eval.env.0.weight=2"], "eval.env.0.weight: .* in turn"),
        ([f"eval.env.0.id={GAME}", "eval.env.0.kwargs.max_nmber=2"], "^eval.env.0.kwargs: .*Did"),
        ([f"eval.env.0.id={GAME}", "eval.env.0.kwargs.max_number=x"], "^eval.env.0.kwargs.max_num"),
    ],
)
def test_errors_name_the_environment_of_the_evaluation(changes, message):
    with pytest.raises(GemError, match=message):
        load_recipe(GUESS, "tiny", changes)


def test_a_recipe_without_eval_env_is_written_as_before():
    path = min(BENCHMARKS.rglob("recipe.json"))
    stored = json.loads(path.read_text())
    assert "env" not in stored["eval"]
    assert recipe_from_dict(stored).to_dict()["eval"] == stored["eval"]


def test_tables_of_unknown_trainers_are_refused_but_stored_recipes_are_read():
    with pytest.raises(RecipeError, match=r"trainer.trll: .*Did you mean 'trl'\? Known: oat, "):
        load_recipe(GUESS, "tiny", ["trainer.trll.x=1"])
    data = load_recipe(GUESS, "tiny", ["trainer.trl.x=1"]).to_dict()
    data["trainer"] = {"of_another_machine": {"x": 1}}
    stored = recipe_from_dict(data)
    with pytest.raises(RecipeError, match=r"trainer\.of_another_machine"):
        override(stored, ["seed=1"])


def test_recorded_results_can_be_read():
    paths = sorted(BENCHMARKS.rglob("recipe.json"))
    assert len(paths) > 50
    for path in paths:
        assert RunDir(path.parent).recipe.train.steps >= 1, path


def test_unknown_files_are_guessed(tmp_path):
    with pytest.raises(RecipeError, match="Did you mean 'guess-the-number-easy'"):
        load_recipe("guess-the-numbr-easy")
    with pytest.raises(RecipeError, match=r"No profile 'tinny'. Did you mean 'tiny'"):
        load_recipe(GUESS, "tinny")
    with pytest.raises(RecipeError, match="Cannot read"):
        load_recipe(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(RecipeError, match="not valid TOML"):
        load_recipe(tmp_path / "bad.toml")


def test_later_layers_win(tmp_path):
    (tmp_path / "b.toml").write_text(
        'name="b"\nenv=[{id="game:GuessTheNumber-v0-easy"}]\n'
        '[algorithm]\nestimator="gae"\nlr=1.0\ngamma=0.5\nlam=0.1\n'
        "[profiles.p.algorithm]\nlam=0.3\nlr=0.3\n"
    )
    (tmp_path / "p.toml").write_text("[algorithm]\nlr=0.2\ngamma=0.2\nlam=0.2\n")
    recipe = load_recipe(tmp_path / "b.toml", tmp_path / "p.toml", ["algorithm.lr=0.4"])
    assert (recipe.algorithm.lr, recipe.algorithm.gamma, recipe.algorithm.lam) == (0.4, 0.2, 0.3)
    assert load_recipe(tmp_path / "b.toml").algorithm.lr == 1.0


def test_override_values_are_toml_or_bare_words():
    overrides = ["model.path=org/name", "train.steps=7", "algorithm.betas=[0.8, 0.9]", "name=x y"]
    recipe = load_recipe(GUESS, None, overrides)
    assert recipe.model.path == "org/name" and recipe.train.steps == 7
    assert recipe.algorithm.betas == (0.8, 0.9) and recipe.name == "x y"


def test_merge_replaces_lists_and_merges_tables():
    assert merge({"a": {"x": 1, "y": 2}, "l": [1, 2]}, {"a": {"x": 3}, "l": [9]}) == {
        "a": {"x": 3, "y": 2},
        "l": [9],
    }


@pytest.mark.parametrize("name", sorted(shipped("baselines")))
@pytest.mark.parametrize("profile", [None, *sorted(shipped("profiles"))])
def test_every_shipped_recipe_loads_and_round_trips(name, profile):
    recipe = load_recipe(name, profile)
    assert recipe_from_dict(msgspec.json.decode(msgspec.json.encode(recipe))) == recipe
    keys = recipe_keys()
    for key in recipe.sources:
        assert key in keys, f"sources names {key}, which is no key"


def test_keys_are_complete_and_readable():
    recipe = load_recipe(GUESS)
    keys = recipe_keys()
    assert len(keys) == len(set(keys)) > 50
    assert {"env", "limits.max_turns", "model.tiny.layers", "algorithm.kl_in"} <= set(keys)
    for key in keys:
        get_key(recipe, key)


def test_refuse_names_key_value_and_reason():
    recipe = load_recipe(GUESS, None, ["algorithm.entropy_coef=0.1"])
    refuse_keys(recipe, "x", {"algorithm.kl_coef": "no reference model"})
    with pytest.raises(RecipeError, match=r"x cannot honour algorithm.entropy_coef = 0.1: no"):
        refuse_keys(recipe, "x", {"algorithm.entropy_coef": "no entropy term"})


def test_tables_become_dotted_keys():
    table = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None}
    assert flatten(table) == {"a.b.c": 1, "a.d": [1, 2], "e": None}


def test_options_of_generators_are_parameters_of_their_environment():
    """`ReasoningGym` hands its ``**config`` to the generator, not to its base class."""
    recipe = load_recipe(GUESS, "tiny", ["env=[{id='rg:chain_sum', kwargs={max_terms=2}}]"])
    assert recipe.env[0].kwargs == {"max_terms": 2}
