"""The tiny tokenizer: short prompts, spelled actions, no text lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.env.registration import make
from gem_core.episodes.context import Context, HFTokenizer, get_template


@pytest.fixture
def pieces():
    """First prompt, one feedback and one action of Guess the Number as text."""
    env = make("game:GuessTheNumber-v0-easy")
    context = Context(get_template("qwen3_game"))
    first = context.start(*env.reset(seed=1))
    action = "\\boxed{3}"
    observation, _, _, _, info = env.step(action)
    return first, context.extend(action, True, observation, info).text, action


def test_the_prompt_of_five_hundred_characters_is_some_twenty_tokens(tokenizer, pieces):
    first, feedback, action = (len(tokenizer.encode(p, add_special_tokens=False)) for p in pieces)
    assert len(pieces[0]) > 500
    assert first <= 24
    assert feedback <= 12
    assert action + 1 == 4  # with its end token


def test_digits_and_answer_brackets_are_tokens_of_their_own(tokenizer):
    ids = tokenizer.encode("\\boxed{10}", add_special_tokens=False)
    assert [tokenizer.decode([i]) for i in ids] == ["\\boxed{", "1", "0", "}"]


def test_special_tokens(tokenizer):
    assert tokenizer.convert_tokens_to_ids(["<|pad|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 2)
    assert tokenizer.padding_side == "left"
    assert tokenizer.bos_token_id is None
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [2]


def test_nothing_is_added_when_special_tokens_are_asked_for(tokenizer):
    assert tokenizer.encode("higher") == tokenizer.encode("higher", add_special_tokens=False)


@pytest.mark.parametrize("game", ["Mastermind", "Sudoku", "TowerofHanoi"])
def test_the_other_games_fit_the_tiny_context_too(tokenizer, game):
    env = make(f"game:{game}-v0-easy")
    context = Context(get_template("qwen3_game"))
    prompt = context.start(*env.reset(seed=0))
    assert len(tokenizer.encode(prompt, add_special_tokens=False)) < len(prompt) / 6


def test_chat_template_is_the_games_template(tokenizer):
    """The tokenizer's chat template, which some trainers require, is ChatML."""
    derived = get_template("chat", tokenizer)
    assert derived.first == "<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n"
    assert derived.next == "\n" + derived.first
    assert derived.close == "<|im_end|>"


def test_stop_ids(tokenizer):
    assert HFTokenizer(tokenizer, get_template("qwen3_game")).stop_ids == {2}


@given(text=st.text())
def test_any_text_survives(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    special = ("<|pad|>", "<|im_start|>", "<|im_end|>")
    if not any(token in text for token in special):
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pieces", "text", "tokens"),
    [
        ("cells", " 0  1  .  #\n", ["  1", "  .", "  #"]),
        ("numbers", " 16   2   .\n", [" 16", "   2", "   ."]),
        ("integers", "you guessed 137. \\boxed{137}\n", ["137", "\\boxed{", "}"]),
        ("letters", 'letter "h" appear in "hat"?', ["h", "a", "t"]),
    ],
)
def test_other_pieces_are_tokens_of_their_own(tmp_path, pieces, text, tokens):
    from tokenizers import pre_tokenizers

    from gem_core.training.tiny.tokenizer import train_tokenizer

    trained = train_tokenizer([text] * 20, 400, pieces)
    ids = trained.encode(text, add_special_tokens=False).ids
    assert isinstance(trained.pre_tokenizer, pre_tokenizers.Sequence)
    shown = [trained.decode([i]) for i in ids]
    assert set(tokens) <= set(shown)
    assert trained.decode(ids) == text


def test_a_corpus_of_its_own_makes_prompts_short():
    from gem_core.runs.recipe.load import load_recipe
    from gem_core.training.tiny.corpus import corpus, own_corpus
    from gem_core.training.tiny.tokenizer import train_tokenizer

    recipe = load_recipe("sokoban-easy", "tiny")
    env = make("game:Sokoban-v0-easy", **recipe.env[0].kwargs)
    prompt = Context(get_template("qwen3_game")).start(*env.reset(seed=5))
    own = train_tokenizer(own_corpus(recipe), 700)
    games = train_tokenizer(corpus(), 700)
    assert own_corpus(recipe) == own_corpus(recipe)
    assert 3 * len(own.encode(prompt).ids) < len(games.encode(prompt).ids)
