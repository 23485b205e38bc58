"""Plays given actions in GEM's own games: run by GEM's interpreter, fed by ``run.py``.

One JSON request per line: the game, the hidden state and the actions; one JSON reply per line: for
each action ``[reward, terminated, truncated]``, or ``{"raises": ...}``. The state is written into
GEM's environment, and the steps are GEM's. GEM downloads its word lists; no word is drawn here, so
two fixed words replace them.
"""

import json
import sys
from importlib import import_module
from importlib.metadata import version

import nltk
import numpy
from nltk.corpus import words

GAMES = {
    "GuessTheNumber": "guess_the_number:GuessTheNumberEnv",
    "Mastermind": "mastermind:MastermindEnv",
    "Minesweeper": "minesweeper:MinesweeperEnv",
    "Wordle": "wordle:WordleEnv",
    "Hangman": "hangman:HangmanEnv",
    "Sudoku": "sudoku:SudokuEnv",
    "TowerofHanoi": "tower_of_hanoi:TowerofHanoiEnv",
    "FifteenPuzzle": "fifteen_puzzle:FifteenPuzzleEnv",
    "Game2048": "game_2048:Game2048Env",
    "Sokoban": "sokoban:SokobanEnv",
    "Crosswords": "crosswords:CrosswordsEnv",
    "WordSearch": "word_search:WordSearchEnv",
}


def main():
    nltk.download = lambda *_, **__: True
    words.words = lambda *_: ["alpha", "gamma"]
    made = {}
    print(json.dumps({"gem": version("gem-llm"), "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        game = request["game"]
        if game not in made:
            module, name = GAMES[game].split(":")
            made[game] = getattr(import_module(f"gem.envs.game_env.{module}"), name)()
        inject(made[game], game, request["state"])
        print(json.dumps(play(made[game], request["actions"])), flush=True)


def inject(env, game, state):
    """Write the hidden state into the environment, as ``reset`` would have left it."""
    for name, value in state.items():
        if name.startswith("set:"):
            value = set(value)
            name = name[4:]
        elif name.startswith("array:"):
            value = numpy.array(value)
            name = name[6:]
        setattr(env, name, value)
    env.turn_count = 0
    if game == "Minesweeper":
        env._setup_mines = lambda row, col: lay_mines(env, row, col)
    if game == "Game2048":
        env._add_random_tile = lambda: add_tile(env)


def lay_mines(env, row, col):
    """Mine the first cells of a given order that are not around the first reveal."""
    free = [
        cell
        for cell in env.order
        if abs(cell // env.cols - row) > 1 or abs(cell % env.cols - col) > 1
    ]
    for cell in free[: env.num_mines]:
        env.grid[cell // env.cols][cell % env.cols] = -1
    env._calculate_adjacent_numbers()


def add_tile(env):
    """Put the next tile of a given list on the board."""
    row, col, value = env.tiles.pop(0)
    assert env.board[row][col] == 0, "the boards differ"
    env.board[row][col] = value


def play(env, actions):
    results = []
    for action in actions:
        try:
            _, reward, terminated, truncated, _ = env.step(action)
        except Exception as error:
            results.append({"raises": type(error).__name__})
            break
        results.append([float(reward), bool(terminated), bool(truncated)])
        if terminated or truncated:
            break
    return results


if __name__ == "__main__":
    main()
