"""A warm start of a model that has been trained before: here one with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from gem_core.episodes.data import Segment
from gem_core.errors import RecipeError
from gem_core.evaluation.local import evaluate
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import run_envs
from gem_core.training.tiny import model_path
from gem_core.training.warm_start.clone import action_loss, clone
from gem_core.training.warm_start.episodes import expert_episodes
from gem_core.training.warm_start.imitation import imitation_of
from gem_core.training.warm_start.pretrained import start_settings

GUESS = "guess-the-number-easy"
STEPS = ("model.warm_start.steps=40", "model.warm_start.batch=16", "model.warm_start.lr=5e-3")


@pytest.fixture(scope="module")
def untrained(tiny_recipe, tmp_path_factory):
    """A folder as a user has one: random weights, the tiny model's tokenizer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.mktemp("untrained")))
        yield model_path(tiny_recipe("model.tiny.warm_start_steps=0"))


@pytest.fixture
def started(untrained, empty_cache):
    """``started(*overrides)``: the recipe of that folder, with a short warm start."""
    return lambda *more: load_recipe(
        GUESS, "tiny", [f"model.path={untrained!r}".replace('"', "'"), *STEPS, *more]
    )


def test_without_steps_the_model_is_the_recipes_own(untrained, empty_cache):
    assert model_path(load_recipe(GUESS, "tiny", [f"model.path='{untrained}'"])) == untrained


def test_a_model_that_has_imitated_plays_like_its_teacher(started, untrained):
    recipe = started("model.warm_start.teacher=within-hints", "eval.episodes=100")
    folder = Path(model_path(recipe))
    assert str(folder) == model_path(recipe) != untrained
    record = json.loads((folder / "warm_start.json").read_text())
    assert record["settings"]["imitation"]["teacher"] == "within-hints"
    assert record["expert"]["episodes"] == 640
    assert len(record["loss"]) == 40
    assert sum(record["loss"][-5:]) < 0.5 * sum(record["loss"][:5])
    before = evaluate(recipe, untrained)["turns/invalid"]
    assert evaluate(recipe, folder)["turns/invalid"] < 0.2 < before


def test_what_is_imitated_names_the_place_in_the_cache(started):
    changes = ([], ["model.warm_start.teacher=expert"], ["model.warm_start.habit=lowest-left"])
    changes += (["model.warm_start.noise=0.5"], ["model.warm_start.lr=1e-3"], ["seed=3"])
    short = ("model.warm_start.steps=2",)
    names = {model_path(started(*short, *change)) for change in changes}
    assert len(names) == len(changes)


def test_what_a_gpu_made_has_a_place_of_its_own(started):
    """That of a CPU has the name that it had when there was no other."""
    on_cpu, on_gpu = started(), started("hardware.device=gpu")
    places = [start_settings(recipe, run_envs(recipe), {}) for recipe in (on_cpu, on_gpu)]
    assert "device" not in places[0]
    assert places[1] == {**places[0], "device": "gpu"}


def test_weights_are_stored_in_the_recipes_precision_with_the_files_of_the_model(
    started, untrained
):
    folder = Path(model_path(started("model.warm_start.steps=2", "model.dtype=bfloat16")))
    weights = load_file(folder / "model.safetensors")
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (folder / name).read_bytes() == (Path(untrained) / name).read_bytes()


def test_the_loss_is_that_of_the_whole_forward_pass(started, untrained, tokenizer):
    recipe = started()
    episodes = expert_episodes(recipe, tokenizer, 5)
    segments = [s for e in episodes for s in e.segments]
    model = AutoModelForCausalLM.from_pretrained(untrained).float()
    losses, tokens = 0.0, 0
    for segment in segments:
        ids = torch.tensor([segment.token_ids])
        logs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        acted = torch.tensor(segment.loss_mask[1:], dtype=torch.bool)
        chosen = logs.gather(1, ids[0, 1:, None])[:, 0][acted]
        losses -= float(chosen.sum().detach())
        tokens += int(acted.sum())
    assert float(action_loss(model, segments)) == pytest.approx(losses / tokens, rel=1e-5)


def test_parts_of_a_step_give_the_gradient_of_the_whole(started, untrained, tokenizer):
    recipe = started("model.warm_start.steps=2", "model.warm_start.batch=5")
    episodes = expert_episodes(recipe, tokenizer, 10)
    episodes[3].segments.append(Segment([1, 2, 3], [0, 0, 0]))  # not trained on
    imitation = imitation_of(recipe)
    assert imitation_of(started("batch.micro_batch=2")).micro_batch == 2
    weights, losses = [], []
    for micro_batch in (None, 2, 1):
        model = AutoModelForCausalLM.from_pretrained(untrained).float()
        losses.append(clone(model, episodes, imitation._replace(micro_batch=micro_batch)))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    for other, curve in zip(weights[1:], losses[1:], strict=True):
        assert curve == pytest.approx(losses[0], rel=1e-5)
        assert float((other - weights[0]).abs().mean()) < 1e-8  # single ones by AdamW up to 1e-5


def test_actions_end_with_the_token_that_ends_turns_in_the_template(started, tokenizer):
    close = ["context.template=custom", "context.custom.close='<|im_start|>'"]
    (end,) = tokenizer.encode("<|im_start|>", add_special_tokens=False)
    for episode in expert_episodes(started(*close), tokenizer, 3):
        (segment,) = episode.segments
        assert {segment.token_ids[stop - 1] for _, _, stop in segment.spans} == {end}


def test_its_keys_go_with_another_model_than_the_tiny_one():
    with pytest.raises(RecipeError, match=r"warm_start\.steps = 3 .* it goes with another model"):
        load_recipe(GUESS, "tiny", ["model.warm_start.steps=3"])


def test_the_tiny_model_has_its_own_settings():
    imitation = imitation_of(load_recipe(GUESS, "tiny"))
    assert (imitation.steps, imitation.teacher, imitation.noise) == (200, "expert", 0.5)
