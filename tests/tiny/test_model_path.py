"""Building and caching the tiny model."""

from __future__ import annotations

import json
import threading
from hashlib import sha256
from pathlib import Path

import pytest
import torch
import transformers

from gem_core.env.registration import register
from gem_core.envs.games.guess_the_number import GuessTheNumber
from gem_core.errors import GemError, RecipeError
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import split_envs
from gem_core.training.tiny import model_path
from gem_core.training.warm_start.episodes import expert_episodes

QUICK = ("model.tiny.warm_start_steps=12", "model.tiny.warm_start_batch=16")
UNGRADED = {"success": False, "graded": False}


def digest(folder):
    return sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()


def test_another_model_is_returned_unchanged():
    recipe = load_recipe("guess-the-number-easy", "tiny", ["model.path=Qwen/Qwen3-4B-Base"])
    assert model_path(recipe) == "Qwen/Qwen3-4B-Base"


def test_the_directory_loads_with_plain_transformers(quick_model):
    model = transformers.AutoModelForCausalLM.from_pretrained(quick_model)
    assert model.config.model_type == "qwen3"
    assert next(model.parameters()).dtype == torch.float32
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.generation_config.eos_token_id == 2
    assert sum(p.numel() for p in model.parameters()) < 200_000


def test_the_same_recipe_builds_the_same_bytes(quick_model, tiny_recipe, empty_cache):
    again = model_path(tiny_recipe())
    assert Path(again).parent.parent == empty_cache
    assert digest(again) == digest(quick_model)
    assert Path(again).name == quick_model.name


def test_the_global_generators_are_left_alone(tiny_recipe, empty_cache):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    model_path(tiny_recipe())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_seed_environment_and_settings_name_the_cache_entry(tiny_recipe, empty_cache):
    overrides = ([], ["seed=1"], ["model.tiny.hidden=32"], ["limits.max_turns=3"])
    paths = [model_path(tiny_recipe(*o, "model.tiny.warm_start_steps=0")) for o in overrides]
    assert len(set(paths)) == 4


def test_what_the_weights_do_not_depend_on_does_not(tiny_recipe, empty_cache):
    first = model_path(tiny_recipe("model.tiny.warm_start_steps=0"))
    for override in ("algorithm.lr=1e-3", "train.steps=7", "batch.episodes=8", "eval.episodes=9"):
        assert model_path(tiny_recipe("model.tiny.warm_start_steps=0", override)) == first


def test_a_cached_model_is_not_built_again(tiny_recipe, empty_cache):
    first = Path(model_path(tiny_recipe()))
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert Path(model_path(tiny_recipe())) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_build_that_is_interrupted_leaves_nothing(tiny_recipe, empty_cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gem_core.training.tiny.build.clone", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model_path(tiny_recipe())
    assert [p for p in (empty_cache / "tiny").iterdir() if p.is_dir()] == []
    monkeypatch.undo()
    monkeypatch.setenv("GEM_CORE_CACHE", str(empty_cache))
    assert (Path(model_path(tiny_recipe())) / "model.safetensors").exists()


def test_sizes_that_make_no_model_are_named(tiny_recipe, empty_cache):
    with pytest.raises(RecipeError, match=r"model\.tiny\.hidden.*multiple of 8"):
        model_path(tiny_recipe("model.tiny.hidden=30"))


def test_two_builders_at_once_build_once(tiny_recipe, empty_cache):
    paths = []
    threads = [
        threading.Thread(target=lambda: paths.append(model_path(tiny_recipe()))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert [p for p in (empty_cache / "tiny").iterdir() if p.is_dir()] == [Path(paths[0])]


def test_the_record_tells_how_it_was_made(quick_model):
    record = json.loads((quick_model / "warm_start.json").read_text())
    assert len(record["loss"]) == 12
    assert record["loss"][-1] < record["loss"][0]
    assert record["expert"]["episodes"] == 12 * 16
    assert set(record["versions"]) == {"torch", "transformers", "tokenizers"}
    assert record["settings"]["seed"] == 0


def test_expert_episodes_have_the_layout_of_rl(tokenizer, tiny_recipe):
    """There is one segment, actions are tokens plus the end token, and seeds differ."""
    episodes = expert_episodes(tiny_recipe(), tokenizer, 20)
    for episode in episodes:
        (segment,) = episode.segments
        assert episode.seed < -(10**12) + 1
        for turn, (_, start, end) in zip(episode.turns, segment.spans, strict=True):
            spelled = tokenizer.encode(turn.action, add_special_tokens=False)
            assert segment.token_ids[start:end] == [*spelled, tokenizer.eos_token_id]
    assert len({e.seed for e in episodes}) == 20


def test_noise_makes_the_expert_worse(tokenizer, tiny_recipe):
    rates = []
    for noise in (0.0, 0.5):
        recipe = tiny_recipe(f"model.tiny.expert_noise={noise}")
        episodes = expert_episodes(recipe, tokenizer, 200)
        rates.append(sum(e.success for e in episodes) / 200)
    assert rates[0] == 1.0
    assert 0.5 < rates[1] < 0.75


def test_the_teacher_is_who_plays_and_names_the_cache_entry(tokenizer, tiny_recipe, empty_cache):
    rates = {}
    for teacher in ("expert", "within-hints", "random"):
        recipe = tiny_recipe(f"model.tiny.teacher={teacher}", "model.tiny.expert_noise=0.0")
        episodes = expert_episodes(recipe, tokenizer, 200)
        rates[teacher] = sum(e.success for e in episodes) / 200
    assert rates["expert"] == 1.0
    assert 0.2 < rates["random"] < 0.5 < rates["within-hints"] < 0.9
    names = {Path(model_path(tiny_recipe(f"model.tiny.teacher={t}"))).name for t in rates}
    assert len(names) == 3
    assert Path(model_path(tiny_recipe())).name in names


def test_a_habit_replaces_the_share_of_turns_that_noise_says(tokenizer, tiny_recipe, empty_cache):
    habit = "model.tiny.habit=lowest-left"
    for noise, share in ((1.0, 1.0), (0.75, 0.75)):
        recipe = tiny_recipe(habit, f"model.tiny.expert_noise={noise}")
        first = [e.turns[0].action for e in expert_episodes(recipe, tokenizer, 300)]
        assert abs(first.count("\\boxed{1}") / 300 - share) < 0.09
    paths = {model_path(tiny_recipe(*more)) for more in ([], [habit], ["model.tiny.habit=expert"])}
    assert len(paths) == 3


@pytest.mark.parametrize("key", ["teacher", "habit"])
def test_a_player_that_an_environment_does_not_have_is_refused_with_those_it_has(tiny_recipe, key):
    with pytest.raises(
        GemError,
        match=rf"^model\.tiny\.{key}: Unknown player 'within-hint'. Did you mean 'within-hints'",
    ):
        tiny_recipe(f"model.tiny.{key}=within-hint")


def test_an_environment_without_an_expert_imitates_random_actions(empty_cache, tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "r"\n[[env]]\nid = "test:NoExpert-v0"\n')
    register("test:NoExpert-v0", "gem_core.envs.games.guess_the_number:GuessTheNumber")
    with pytest.warns(UserWarning, match="test:NoExpert-v0 has no expert"):
        path = Path(model_path(load_recipe(recipe, "tiny", QUICK)))
    expert = json.loads((path / "warm_start.json").read_text())["expert"]
    assert expert["random_actions"]["test:NoExpert-v0"] >= 12 * 16


@pytest.mark.parametrize("env_id", ["math:GSM8K", "code:PrimeIntellect15k", "qa:HotpotQA"])
def test_a_question_is_answered_with_the_solution_of_the_item_that_is_played(
    tokenizer, tmp_path, env_id
):
    file = tmp_path / "r.toml"
    kwargs = '{ dataset = "sample" }'
    file.write_text(f'name = "r"\n[[env]]\nid = "{env_id}"\nkwargs = {kwargs}\n')
    recipe = load_recipe(file, "tiny", ["model.tiny.expert_noise=0.0"])
    (config,) = split_envs(recipe, "train")
    env = make_for_run(config, "env.0")
    for episode in expert_episodes(recipe, tokenizer, 8):
        question, _ = env.reset(seed=episode.seed)
        assert episode.turns[0].observation == question
        assert env.step(episode.turns[0].action)[4]["success"]


def test_slow_graders_do_not_grade_the_warm_start(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.envs.code.grade_code", None)  # calling it would raise
    file = tmp_path / "r.toml"
    kwargs = '{ dataset = "sample" }'
    file.write_text(f'name = "r"\n[[env]]\nid = "code:CodeContest"\nkwargs = {kwargs}\n')
    episodes = expert_episodes(load_recipe(file, "tiny"), tokenizer, 8)
    assert all(episode.turns[0].info == UNGRADED for episode in episodes)


def test_an_environment_that_fails_stops_the_build(tokenizer, tiny_recipe, monkeypatch):
    def fail(self, answer):
        raise RuntimeError("the game broke")

    monkeypatch.setattr(GuessTheNumber, "_move", fail)
    with pytest.raises(GemError, match="the game broke"):
        expert_episodes(tiny_recipe(), tokenizer, 1)


@pytest.mark.parametrize("context", ["1025", "99999"])
def test_a_context_beyond_the_positions_is_refused(tiny_recipe, empty_cache, context):
    with pytest.raises(RecipeError, match=r"limits\.max_context_tokens.*1024 positions"):
        model_path(tiny_recipe(f"limits.max_context_tokens={context}"))
    model_path(tiny_recipe("limits.max_context_tokens=1024", "model.tiny.warm_start_steps=0"))
