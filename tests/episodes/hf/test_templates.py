"""The recipe's template meets the tokenizer: its bos token, its end of a turn, its own texts."""

from __future__ import annotations

import pytest
from families import FAMILIES, make_tokenizer
from tokenizers.processors import TemplateProcessing

from gem_core.episodes.context import HFTokenizer, get_template
from gem_core.episodes.data import Completion
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.templates import recipe_template
from gem_core.runs.tasks import MachineFactory, train_task

GUESS = "guess-the-number-easy"
CUSTOM = [
    "context.template=custom",
    "context.custom.first='<start_of_turn>user\\n{observation}<end_of_turn>\\n'",
    "context.custom.next='\\n[{observation}]\\n'",
    "context.custom.close='<end_of_turn>'",
]
LONG = "limits.max_tokens_per_turn=32"


def beginning(hf, token):
    """Return the tokenizer, which begins every text with ``token`` as Gemma's and Llama's do."""
    hf.bos_token = token
    hf.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, hf.bos_token_id)]
    )
    return hf


@pytest.fixture
def gemma():
    return beginning(make_tokenizer(FAMILIES["gemma3"]), "<bos>")


def first_prompt(recipe, hf):
    factory = MachineFactory(recipe, hf, inline=True)
    return factory, factory(train_task(recipe, 0)).start()


@pytest.mark.parametrize("settings", [["context.template=no"], CUSTOM])
def test_a_prompt_begins_with_the_bos_token_that_the_tokenizer_adds(gemma, settings):
    _, prompt = first_prompt(load_recipe(GUESS, "tiny", settings), gemma)
    assert prompt[0] == gemma.bos_token_id
    assert prompt.count(gemma.bos_token_id) == 1
    text = gemma.decode(prompt, skip_special_tokens=True)
    assert list(prompt)[:1] == gemma.encode(text)[:1]


@pytest.mark.parametrize("history", ["append", "last"])
def test_only_a_new_sequence_begins_with_it(gemma, history):
    recipe = load_recipe(GUESS, "tiny", [*CUSTOM, f"context.history={history}", LONG])
    factory = MachineFactory(recipe, gemma, inline=True)
    machine = factory(train_task(recipe, 0))
    machine.start()
    guess = gemma.encode("\\boxed{0}", add_special_tokens=False)
    (end,) = gemma.encode("<end_of_turn>", add_special_tokens=False)
    prompt = machine.feed(Completion([*guess, end]))
    assert prompt.count(gemma.bos_token_id) == 1
    assert prompt[0] == gemma.bos_token_id


def test_a_bos_token_that_the_tokenizer_does_not_add_is_not_added():
    plain = make_tokenizer(FAMILIES["gemma3"])
    plain.bos_token = "<bos>"
    template = get_template("no", plain)
    assert template == get_template("no")


def test_a_first_text_that_has_the_token_keeps_one(gemma):
    first = "context.custom.first='<bos>{observation}'"
    recipe = load_recipe(GUESS, "tiny", ["context.template=custom", first])
    assert recipe_template(recipe.context, gemma).first == "<bos>{observation}"


def test_custom_texts_are_the_prompt_and_the_end_of_a_turn(gemma):
    recipe = load_recipe(GUESS, "tiny", CUSTOM)
    factory, prompt = first_prompt(recipe, gemma)
    text = gemma.decode(prompt, skip_special_tokens=False)
    assert text.startswith("<bos><start_of_turn>user")
    (end,) = gemma.encode("<end_of_turn>", add_special_tokens=False)
    assert end in factory.tokenizer.stop_ids


@pytest.mark.parametrize("name", ["qwen3_game", "qwen3_general"])
def test_an_end_of_turns_that_is_no_token_of_the_model_is_refused(gemma, name):
    with pytest.raises(RecipeError, match=r"'<\|im_end\|>', which is no token .* choose 'chat'"):
        HFTokenizer(gemma, get_template(name, gemma))


@pytest.mark.parametrize("key", ["first", "next"])
def test_a_custom_text_without_a_place_for_the_observation_is_refused(key):
    with pytest.raises(RecipeError, match=rf"'{key}' needs {{observation}} exactly once"):
        load_recipe(GUESS, "tiny", ["context.template=custom", f"context.custom.{key}=hello"])
