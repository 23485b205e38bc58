"""Habits of the word games: each takes the next candidate of its own order, whatever it is told."""

from __future__ import annotations

from typing import Any

import pytest

import gem_core
from gem_core.envs.players import get_player

SYLLABLES = {"words": "syllables", "word_length": 3, "answer_format": "plain"}


def played(env_id: str, name: str, seed: int, **kwargs: Any) -> tuple[list[str], list[str]]:
    """Return the actions of a player and the observations after them."""
    env = gem_core.make(env_id, **kwargs)
    observation, info = env.reset(seed=seed)
    player = get_player(name, env_id, seed, env=env)
    player.reset(observation, info)
    actions: list[str] = []
    observations: list[str] = []
    over = False
    while not over:
        actions.append(player.act(observation, info))
        observation, _, terminated, truncated, info = env.step(actions[-1])
        observations.append(observation)
        over = terminated or truncated
    return actions, observations


@pytest.mark.parametrize("seed", range(4))
def test_linear_searches_of_words_take_the_next_one(seed: int) -> None:
    letters, _ = played("game:Hangman-v0-easy", "first-letter", seed, max_turns=4, **SYLLABLES)
    assert letters == ["A", "B", "C", "D"]
    words, _ = played("game:Wordle-v0-easy", "next-word", seed, max_turns=4, **SYLLABLES)
    assert words == ["BAB", "BAD", "BAG", "BAK"][: len(words)]


@pytest.mark.parametrize("seed", range(8))
def test_next_letters_keeps_what_is_green_and_changes_the_rest(seed: int) -> None:
    guesses, told = played("game:Wordle-v0-easy", "next-letters", seed, max_turns=12, **SYLLABLES)
    assert "You have won" in told[-1]  # no place has more than 9 letters
    for guess, after, text in zip(guesses, guesses[1:], told, strict=False):
        marks = text.splitlines()[2].split()
        assert [a == b for a, b in zip(guess, after, strict=True)] == [m == "G" for m in marks]


def test_the_lines_of_a_word_search_are_named_one_after_another() -> None:
    kwargs = {**SYLLABLES, "side": 3, "num_words": 1, "max_turns": 6}
    actions, told = played("game:WordSearch-v0-easy", "next-line", 5, **kwargs)
    lines = ["0 0 0 2", "1 0 1 2", "2 0 2 2", "0 0 2 0", "0 1 2 1", "0 2 2 2"]
    assert actions == lines[: len(actions)]
    assert "You have won" in told[-1]


def test_the_alphabet_is_entered_in_the_first_empty_cell() -> None:
    kwargs = {"num_words": 1, "num_clues": 4, "hidden_letters": 2, "max_turns": 52}
    actions, told = played(
        "game:Crosswords-v0-easy", "alphabet-in-cell", 1, answer_format="plain", **kwargs
    )
    letters = "".join(action.split()[2] for action in actions)
    first = next(k for k, text in enumerate(told) if "is right" in text) + 1
    assert (
        letters
        == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:first]
        + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(actions) - first]
    )
    assert "You have won" in told[-1]
