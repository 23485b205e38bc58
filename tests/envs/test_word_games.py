"""Wordle and Hangman, and the word lists behind them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.data.words import LISTS, SYLLABLES, upper_words, words
from gem_core.envs.games.hangman import Hangman
from gem_core.envs.games.wordle import Wordle, marks
from gem_core.envs.players import get_player
from gem_core.errors import UnknownNameError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import make_word_lists

WORDLE, HANGMAN = "game:Wordle-v0-hard", "game:Hangman-v0-hard"


def with_word(word: str, env_id: str, **kwargs: object) -> Env:
    env = gem_core.make(env_id, word_length=len(word), **kwargs)
    env.reset(seed=0)
    state = env.get_state()
    state["fields"].update(_word=word)
    env.set_state(state)
    return env


@pytest.mark.parametrize("name", [*LISTS, SYLLABLES])
def test_word_lists_are_clean(name: str) -> None:
    assert list(words(name)) == sorted(set(words(name)))
    assert all(w.isascii() and w.isalpha() and w.islower() for w in words(name))
    assert words(name) is words(name) and upper_words(name, 4) is upper_words(name, 4)
    with pytest.raises(UnknownNameError, match="Did you mean"):
        words(name + "x")
    with pytest.raises(ValueError, match="no words of length 99"):
        upper_words(name, 99)


def plain_marks(word: str, guess: str) -> str:
    """The definition, letter by letter: greens first, then yellows while letters are left."""
    left = Counter(w for w, g in zip(word, guess, strict=True) if w != g)
    marks_so_far = []
    for w, g in zip(word, guess, strict=True):
        if w == g:
            marks_so_far.append("G")
        elif left[g]:
            left[g] -= 1
            marks_so_far.append("Y")
        else:
            marks_so_far.append("X")
    return "".join(marks_so_far)


def test_marks_agree_with_the_definition() -> None:
    rng = Random(0)
    for _ in range(3000):
        word, guess = ("".join(rng.choices("ABC", k=4)) for _ in range(2))
        assert "".join(marks(word, guess)) == plain_marks(word, guess)


def test_wordle_pays_each_green_once_and_the_word() -> None:
    env = with_word("HELLO", WORDLE)
    obs, reward, *_ = env.step("\\boxed{hotel}")
    assert "H O T E L\nG Y X Y Y" in obs and reward == pytest.approx(0.1)
    obs, reward, *_ = env.step("\\boxed{H A L L S}")
    assert "G X G G X" in obs and reward == pytest.approx(0.2)
    _, reward, terminated, _, info = env.step("\\boxed{HELLO}")
    assert (reward, terminated, info["success"]) == (pytest.approx(0.7), True, True)


def test_wordle_takes_any_letters_once() -> None:
    env = with_word("HELLO", WORDLE)
    assert "error" not in env.step("\\boxed{zzzzz}")[4]
    assert env.step("\\boxed{ZZZZZ}")[4]["error"] == "invalid_action"
    assert env.step("\\boxed{HELL}")[4]["error"] == "invalid_action"
    assert env.step("\\boxed{HELL0}")[4]["error"] == "invalid_format"


def test_the_rules_of_wordle_hold_no_hint() -> None:
    env = gem_core.make(WORDLE)
    assert len({env.reset(seed=s)[0] for s in range(20)}) == 1
    assert len({env._word for s in range(50) if env.reset(seed=s)}) > 40


def test_hangman_ends_when_all_letters_are_revealed() -> None:
    env = with_word("PEPPERY", HANGMAN)
    obs, reward, terminated, _, info = env.step("\\boxed{p}")
    assert "P _ P P _ _ _" in info["suffix"] and reward == pytest.approx(0.5 * 3 / 7)
    assert not terminated and "is in the word" in obs
    total = reward + sum(env.step(f"\\boxed{{{letter}}}")[1] for letter in "ER")
    _, reward, terminated, _, info = env.step("\\boxed{Y}")
    assert (terminated, info["success"]) == (True, True)
    assert total + reward == pytest.approx(1)


def test_hangman_pays_the_word_with_what_is_hidden() -> None:
    env = with_word("PEPPERY", HANGMAN)
    total = env.step("\\boxed{P}")[1] + env.step("\\boxed{Z}")[1] + env.step("\\boxed{PEPPERS}")[1]
    _, reward, terminated, _, info = env.step("\\boxed{peppery}")
    assert (terminated, info["success"]) == (True, True)
    assert total + reward == pytest.approx(1) and "P E P P E R Y" in info["suffix"]


def test_compat_hangman_asks_for_the_word() -> None:
    env = with_word("TOO", HANGMAN, compat="gem-0.1.0")
    env.step("\\boxed{T}")
    assert not env.step("\\boxed{O}")[2]
    assert env.step("\\boxed{TOO}")[1:3] == (0.5, True)


@pytest.mark.parametrize(
    ("answer", "error"),
    [("P", "action"), ("TOOLONGER", "action"), ("3", "format"), ("é", "format")],
)
def test_hangman_errors(answer: str, error: str) -> None:
    env = with_word("PEPPERY", HANGMAN)
    env.step("\\boxed{P}")
    assert env.step(f"\\boxed{{{answer}}}")[4]["error"] == f"invalid_{error}"


def test_lengths_without_words_are_refused() -> None:
    for env_id in (WORDLE, HANGMAN):
        with pytest.raises(ValueError, match="no words of length 40"):
            gem_core.make(env_id, word_length=40)


def test_the_sizes_that_the_documentation_states() -> None:
    sizes = {
        name: [len(words(name)), *(len(upper_words(name, n)) for n in (3, 5, 7))] for name in LISTS
    }
    assert sizes == {
        "basic": [3710, 157, 600, 675],
        "basic850": [850, 65, 152, 119],
        "english": [38981, 478, 3454, 6716],
    }
    for name, (_, three, five, seven) in sizes.items():
        for cls in (Wordle, Hangman):
            doc = " ".join(str(cls.__doc__).split())
            assert f"{three}" in doc.split(f'"{name}"')[1], (name, cls)
            assert f"{seven:,}" in doc and f"{five:,}" in doc


def test_the_list_of_gems_size_is_a_part_of_the_basic_one_without_inflected_forms() -> None:
    small = set(words("basic850"))
    assert small < set(words("basic"))
    assert small == set(make_word_lists.small(list(words("basic"))))
    assert not any(f"{word}s" in small or f"{word}ing" in small for word in small)


def test_syllables_are_a_consonant_and_a_vowel_in_turn() -> None:
    made_up = words(SYLLABLES)
    assert Counter(map(len, made_up)) == {2: 45, 3: 405, 4: 2025}
    assert all((letter in "aeiou") == bool(i % 2) for w in made_up for i, letter in enumerate(w))
    for env_id, said in ((WORDLE, "secret made-up word"), (HANGMAN, "Find a made-up word of 3")):
        env = gem_core.make(env_id, words=SYLLABLES, word_length=3)
        assert said in env.reset(seed=0)[0]
        assert env.get_state()["fields"]["_word"].lower() in made_up


@pytest.mark.parametrize("env_id", [WORDLE, HANGMAN, "game:WordSearch-v0-easy"])
def test_words_come_from_the_list_that_is_asked_for(env_id: str) -> None:
    env = gem_core.make(env_id, words="basic850").unwrapped
    drawn = set()
    for seed in range(60):
        env.reset(seed=seed)
        drawn.update(getattr(env, "_words", None) or [env._word])
    assert len(drawn) > 40 and drawn <= set(upper_words("basic850"))
    with pytest.raises(UnknownNameError, match="'basic850'"):
        gem_core.make(env_id, words="basic85")


def test_compat_wordle_counts_a_tab_as_a_letter() -> None:
    for compat, error in ((None, "invalid_action"), ("gem-0.1.0", None)):
        env = with_word("APPLE", WORDLE, compat=compat)
        assert env.step("\\boxed{AP\tLE}")[4].get("error") == error
        assert env.step("\\boxed{A PP LE}")[4]["success"]


@pytest.mark.parametrize("env_id", ["game:Wordle-v0-easy", "game:Hangman-v0-easy"])
def test_a_game_draws_from_words_that_are_given(env_id):
    env = gem_core.make(env_id, words=["cat", "dog", "horse"])
    player = get_player("expert", env.spec.id, 0, env=env)
    drawn = set()
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        player.reset(observation, info)
        over = False
        while not over:
            action = player.act(observation, info)
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        assert info["success"]
        drawn.add(env.unwrapped._word)
    assert drawn == {"CAT", "DOG"}


@pytest.mark.parametrize("env_id", ["game:Wordle-v0-easy", "game:Hangman-v0-easy"])
@pytest.mark.parametrize("words", [["horse"], ["c4t"], [3]])
def test_words_that_cannot_be_drawn_are_refused(env_id, words):
    with pytest.raises(ValueError, match="word"):
        gem_core.make(env_id, words=words)
