"""Play the tiny environments without a model: ``python benchmarks/suite/players.py``.

Three players for each baseline of the suite: random actions, the scripted expert, and the best
constant answer, which gives the same action in every turn of every episode: the one of the expert's
that succeeds most often. A policy that has learned no more than that one answer is not better.
Writes ``players.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gem_core.env.interface import Env
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import EnvConfig
from gem_core.runs.recipe.suite import load_suite
from gem_core.training.warm_start.episodes import expert_action, expert_player

HERE = Path(__file__).parent
CANDIDATES = 12
"""Number of commonest expert actions that are tried as a constant answer."""
FIRST_SEED = 10**6
Act = Callable[[tuple[str, dict[str, Any]]], str]
"""Observation and info -> action."""


def main() -> None:
    """Play and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--constant-episodes", type=int, default=200)
    parser.add_argument("--only", nargs="+", metavar="BASELINE", help="keep the rows of the others")
    args = parser.parse_args()
    target = HERE / "players.json"
    kept = json.loads(target.read_text(encoding="utf-8"))["baselines"] if args.only else {}
    rows = {}
    for baseline in load_suite():
        if args.only and baseline.name not in args.only:
            rows[baseline.name] = kept[baseline.name]
            continue
        recipe = load_recipe(baseline.name, "tiny")
        row = measure(recipe.env[0], args.episodes, args.constant_episodes)
        rows[baseline.name] = {**row, "episodes": args.episodes, "commit": commit()}
        print(baseline.name, rows[baseline.name], flush=True)
    target.write_text(json.dumps({"baselines": rows}, indent=1) + "\n", encoding="utf-8")


def measure(config: EnvConfig, episodes: int, constant_episodes: int) -> dict[str, Any]:
    """Return the success rates of the three players."""
    env = make_for_run(config, "env.0")
    seen: Counter[str] = Counter()
    row: dict[str, Any] = {"random": success(env, episodes, random_actions)}

    def expert(env: Env, seed: int, shown: tuple[str, dict[str, Any]]) -> Act:
        player = expert_player(env, config.id, seed)
        player.reset(*shown)
        rng = random.Random(seed)

        def act(shown: tuple[str, dict[str, Any]]) -> str:
            action = expert_action(player, env, shown, rng)[0]
            seen[action] += 1
            return action

        return act

    row["expert"] = success(env, episodes, expert)
    best = 0.0
    for action, _ in seen.most_common(CANDIDATES):
        rate = success(env, constant_episodes, lambda env, seed, shown, a=action: lambda _: a)
        if rate >= best:
            best, row["constant_action"] = rate, action
    row["constant"] = best
    env.close()
    return row


def random_actions(env: Env, seed: int, shown: tuple[str, dict[str, Any]]) -> Act:
    """Return a player of random actions."""
    rng = random.Random(seed)
    return lambda _: env.random_action(rng)


def success(env: Env, episodes: int, player: Callable[..., Act]) -> float:
    """Return the share of episodes that end in success."""
    won = 0
    for seed in range(FIRST_SEED, FIRST_SEED + episodes):
        shown = env.reset(seed=seed)
        act = player(env, seed, shown)
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(act(shown))
            shown = observation, info
            over = terminated or truncated
        won += bool(info.get("success"))
    return won / episodes


def commit() -> str:
    """Return the commit, with "+" where the tree differs from it."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=40", "--dirty=+"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
