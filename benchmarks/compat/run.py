"""The games under ``compat="gem-0.1.0"`` against GEM 0.1.0 itself, action by action.

    python -m venv gem && gem/bin/pip install gem-llm==0.1.0
    .venvs/core/bin/python benchmarks/compat/run.py --gem-python gem/bin/python

Every episode is played in gem-core first, with right, wrong, repeated and malformed actions; then
GEM's own environment, put into the same hidden state, is given the same actions. Reward, terminated
and truncated must agree at every action, except for the differences that are named below and in
``docs/environments/differences.md``. Writes ``result.json``, ``README.md`` and a short record of
GEM's verdicts, which ``tests/envs/test_gem_replay.py`` replays without GEM.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isclose
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from actions import CONTENTS, TEXTS, odd_action  # noqa: E402
from states import State, gem_state  # noqa: E402

import gem_core  # noqa: E402
from gem_core.env.parsing import boxed  # noqa: E402
from gem_core.envs.players import get_player  # noqa: E402
from gem_core.runs import provenance  # noqa: E402

RESULT = HERE / "result.json"
RECORD = ROOT / "tests" / "envs" / "gem_replay.json"
COMPAT = "gem-0.1.0"
GAMES = {
    "GuessTheNumber": ("easy", "hard", "random"),
    "Mastermind": ("easy", "hard", "random"),
    "Minesweeper": ("easy", "hard", "random"),
    "Wordle": ("easy", "hard", "random"),
    "Hangman": ("easy", "hard", "random"),
    "Sudoku": ("easy", "hard", "random"),
    "TowerofHanoi": ("easy", "hard", "random"),
    "FifteenPuzzle": ("easy", "hard", "random"),
    "Game2048": ("easy", "hard", "random"),
    "Sokoban": ("easy", "hard", "random"),
    "Crosswords": ("easy", "hard", "random"),
    "WordSearch": ("easy", "hard", "random"),
}
"""Game -> variants, which take turns."""
LIMIT = "turn limit: GEM reports terminated and truncated, we report terminated"
RAISES = "GEM raises, we report a format error"
NAMED = (LIMIT, RAISES)
PROBES = 4
"""Single first actions of every kind."""
RECORDED = 10
"""Episodes of each game that are recorded in addition to the probes."""
LONGEST = 300
"""Characters of the longest action in a recorded episode."""


class Step(NamedTuple):
    """One action and its result in gem-core."""

    kind: str
    action: str
    reward: float
    terminated: bool
    truncated: bool
    error: str | None


class Episode(NamedTuple):
    """An episode played in gem-core."""

    game: str
    env_id: str
    seed: int
    fields: dict[str, Any]  # our state after `reset`, without the generator
    state: State  # the same for GEM
    steps: list[Step]


def play(game: str, variant: str, seed: int, oddness: float) -> Episode:
    """Play one episode in gem-core."""
    env_id = f"game:{game}-v0-{variant}"
    env: Any = gem_core.make(env_id, compat=COMPAT).unwrapped
    obs, info = env.reset(seed=seed)
    state = gem_state(game, env)
    episode = Episode(game, env_id, seed, _fields(env), state, [])
    rng = Random(seed)
    actor = Actor(env, env_id, rng, obs, info)
    if game == "Game2048":
        state["tiles"] = _record_tiles(env)
    over = False
    while not over:
        kind, action = actor.act(oddness)
        obs, reward, over, truncated, info = env.step(action)
        actor.observe(obs, info)
        episode.steps.append(Step(kind, action, reward, over, truncated, info.get("error")))
    return episode


def probe(game: str, seed: int) -> Iterator[Episode]:
    """Play one first action of every kind, each in the same state."""
    rng = Random(seed)
    env_id = f"game:{game}-v0-{GAMES[game][seed % 2]}"
    env: Any = gem_core.make(env_id, compat=COMPAT).unwrapped
    for kind in (*CONTENTS, *TEXTS):
        env.reset(seed=seed)
        fields = _fields(env)
        state = gem_state(game, env)
        if game == "Game2048":
            state["tiles"] = _record_tiles(env)
        content, other = (boxed(env.random_action(rng)) or "" for _ in range(2))
        if kind in CONTENTS:
            action = f"\\boxed{{{CONTENTS[kind](content, rng)}}}"
        else:
            action = TEXTS[kind](content, other, rng)
        _, reward, over, truncated, info = env.step(action)
        step = Step(kind, action, reward, over, truncated, info.get("error"))
        yield Episode(game, env_id, seed, fields, state, [step])


def _fields(env: Any) -> dict[str, Any]:
    """Return the state without the generator, as it is now."""
    fields = {name: getattr(env, name) for name in env._state_fields}
    copy: dict[str, Any] = json.loads(json.dumps(fields))
    return copy


class Actor:
    """Chooses actions: an expert's, random ones, repeated ones, odd ones."""

    def __init__(self, env: Any, env_id: str, rng: Random, obs: str, info: dict[str, Any]):
        self.env = env
        self.rng = rng
        self.expert: Any = get_player("expert", env_id, seed=rng.randrange(2**31))
        self.expert.reset(obs, info)
        self.latest = (obs, info)
        self.before: list[str] = []

    def observe(self, obs: str, info: dict[str, Any]) -> None:
        self.latest = (obs, info)

    def act(self, oddness: float) -> tuple[str, str]:
        """Return a kind and an action."""
        rng = self.rng
        which = rng.random()
        if self.expert is not None and which < 0.95 and rng.random() >= oddness:
            return "expert", self.expert.act(*self.latest)
        self.expert = None  # it assumes that its own action was played
        if self.before and which < 0.15:
            kind = "repeated"
            content = rng.choice(self.before)
        elif which < 0.4 and (mines := self._hidden_mines()):
            kind = "flag on a mine"
            content = rng.choice(mines)
        else:
            kind = "random"
            content = self._random()
        if rng.random() >= oddness:
            self.before.append(content)
            return kind, f"\\boxed{{{content}}}"
        action, kind = odd_action(content, self._random(), rng)
        return kind, action

    def _hidden_mines(self) -> list[str]:
        env = self.env
        if type(env).__name__ != "Minesweeper":
            return []
        mines = [i for i, cell in enumerate(env._cells) if cell == "*"]
        return [
            f"flag {i // env._cols} {i % env._cols}"
            for i in mines
            if env._text[env._position(i)] == "."
        ]

    def _random(self) -> str:
        content = boxed(self.env.random_action(self.rng))
        assert content is not None
        return content


def _record_tiles(env: Any) -> list[Any]:
    """Return a list that grows by (row, column, value) with each tile that appears."""
    tiles: list[Any] = []
    add_tile = env._add_tile

    def recording_add_tile() -> int:
        before = env._rows
        empty: int = add_tile()
        for row, (old, new) in enumerate(zip(before, env._rows, strict=True)):
            tiles.extend([row, col, tile] for col, tile in enumerate(new) if tile != old[col])
        return empty

    env._add_tile = recording_add_tile
    return tiles


class Gem:
    """GEM in a process of its own interpreter."""

    def __init__(self, python: str):
        self.process = subprocess.Popen(
            [python, str(HERE / "gem_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions: dict[str, str] = self._read()

    def play(self, episode: Episode) -> list[Any]:
        """Return GEM's verdicts on the actions of an episode."""
        actions = [step.action for step in episode.steps]
        request = {"game": episode.game, "state": episode.state, "actions": actions}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        verdicts: list[Any] = self._read()
        return verdicts

    def _read(self) -> Any:
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"GEM's process ended with status {self.process.wait()}.")
            if line.startswith(("{", "[")):
                return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def difference(step: Step, verdict: Any, last: bool) -> str | None:
    """Return the name of a difference, ``None`` if there is none."""
    if isinstance(verdict, dict):
        return RAISES if step.error == "invalid_format" else f"GEM raises {verdict['raises']}"
    reward, terminated, truncated = verdict
    if not isclose(reward, step.reward, abs_tol=1e-9):
        return f"reward {step.reward:g}, GEM's {reward:g}"
    if (terminated, truncated) == (step.terminated, step.truncated):
        return None
    if terminated and truncated and step.terminated and last:
        return LIMIT
    return f"terminated, truncated {step[3:5]}, GEM's {terminated, truncated}"


def compare(episode: Episode, verdicts: list[Any]) -> list[tuple[Step, str | None]]:
    """Return the steps that both sides played, each with its difference."""
    budget = episode.state["max_turns"]
    pairs = zip(episode.steps, verdicts, strict=False)
    return [(step, difference(step, v, turn == budget)) for turn, (step, v) in enumerate(pairs, 1)]


def run_game(game: str, actions: int, gem: Gem) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Compare one game on at least that many actions; return figures and the record."""
    errors: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    differences: Counter[str] = Counter()
    examples: dict[str, Any] = {}
    record: list[dict[str, Any]] = []
    episodes = 0
    compared = 0
    probes = [episode for seed in range(PROBES) for episode in probe(game, seed)]
    while compared < actions:
        variants = GAMES[game]
        oddness = (0.0, 0.15, 0.5, 0.15)[episodes % 4]
        if episodes < len(probes):
            episode = probes[episodes]
        else:
            episode = play(game, variants[episodes % len(variants)], episodes, oddness)
        verdicts = gem.play(episode)
        for step, name in compare(episode, verdicts):
            compared += 1
            errors[step.error or "none"] += 1
            kinds[step.kind] += 1
            if name is not None:
                differences[name] += 1
                examples.setdefault(name, [episode.env_id, episode.seed, step.action[:200]])
        if episodes < len(probes) + RECORDED:
            _record(record, episode, verdicts)
        episodes += 1
    unnamed = {k: examples[k] for k in differences if k not in NAMED}
    figures = {
        "actions": compared,
        "episodes": episodes,
        "errors": dict(sorted(errors.items())),
        "kinds": len(kinds),
        "named_differences": {k: n for k, n in differences.items() if k in NAMED},
        "other_differences": sum(n for k, n in differences.items() if k not in NAMED),
        "examples": unnamed,
    }
    return figures, record


def _record(record: list[dict[str, Any]], episode: Episode, verdicts: list[Any]) -> None:
    """Add an episode to the record; all episodes from one state share an entry."""
    if any(len(step.action) > LONGEST for step in episode.steps):
        return
    start = {"env": episode.env_id, "seed": episode.seed, "fields": episode.fields}
    if not record or any(record[-1][key] != start[key] for key in start):
        record.append({**start, "episodes": []})
    actions = [step.action for step in episode.steps]
    record[-1]["episodes"].append([actions, verdicts])


def page(result: dict[str, Any]) -> str:
    """Return the page of a result."""
    lines = [
        '# `compat="gem-0.1.0"` against GEM 0.1.0',
        "",
        "Generated by `python benchmarks/compat/run.py --gem-python PATH`; do not edit. Commit "
        f"`{provenance.short(result.get('commit'))}`.",
        "",
        "The same actions in the same hidden states, in GEM's environments and in ours. Compared "
        "are reward, terminated and truncated at every action. Two differences are known by name:",
        "",
        f"1. {LIMIT}.",
        f"2. {RAISES}.",
        "",
        "| game | actions | of them invalid | malformed | 1. | 2. | other differences |",
        "|---|---|---|---|---|---|---|",
    ]
    for game, figures in result["games"].items():
        errors = figures["errors"]
        named = figures["named_differences"]
        cells = [
            game,
            figures["actions"],
            errors.get("invalid_action", 0),
            errors.get("invalid_format", 0),
            named.get(LIMIT, 0),
            named.get(RAISES, 0),
            figures["other_differences"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gem-python", required=True, help="an interpreter with gem-llm 0.1.0")
    parser.add_argument("--actions", type=int, default=5000, help="of each game (%(default)s)")
    parser.add_argument("--games", nargs="+", default=list(GAMES), choices=GAMES, metavar="GAME")
    parser.add_argument("--out", type=Path, default=RESULT, help="(%(default)s)")
    parser.add_argument("--record", type=Path, default=RECORD, help="(%(default)s)")
    provenance.add_option(parser)
    options = parser.parse_args(arguments)
    provenance.check_option(parser, options)
    commit = provenance.commit()  # of the code that runs, not of a later one
    gem = Gem(options.gem_python)
    games = {}
    records = []
    for game in options.games:
        games[game], record = run_game(game, options.actions, gem)
        records += record
        print(game, json.dumps(games[game]))
    gem.close()
    versions = {"gem_core": gem_core.__version__, **gem.versions}
    versions["python"] = f"{platform.python_version()}, GEM's {gem.versions['python']}"
    result = {"compat": COMPAT, "commit": commit, "versions": versions, "games": games}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    options.out.with_name("README.md").write_text(page(result))
    options.record.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
    return int(any(figures["other_differences"] for figures in games.values()))


if __name__ == "__main__":
    raise SystemExit(main())
