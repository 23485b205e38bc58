"""``gem-core play``: play an environment, or watch a scripted player."""

from __future__ import annotations

import argparse

from gem_core.core import Env
from gem_core.episodes.context import with_suffix
from gem_core.parsing import FORMATS, get_parser, render
from gem_core.registration import make


def play(arguments: argparse.Namespace) -> int:
    """Play one episode in the terminal; the end of the input ends it."""
    from gem_core.players import Player, get_player

    env = make(arguments.env)
    observation, info = env.reset(seed=arguments.seed)
    player: Player | None = None
    if arguments.player != "person":
        player = get_player(arguments.player, arguments.env, seed=arguments.seed, env=env)
        player.reset(observation, info)
    total = 0.0
    turns = 0
    over = False
    while not over:
        print(with_suffix(observation, info))
        if player is not None:
            action = player.act(observation, info)
            print(f"> {action}")
        else:
            try:
                action = _typed(_read(), env, arguments.raw)
            except EOFError:
                print()
                return 0
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        turns += 1
        over = terminated or truncated
        print(f"  [reward {reward:g}]")
    print(observation)
    print(f"{'Solved' if info['success'] else 'Not solved'} in {turns} turns, reward {total:g}.")
    return 0


def _read() -> str:
    """Read one line, or all lines of a fenced block if the first line opens one."""
    lines = [input("> ")]
    if lines[0].startswith("```"):
        while lines[-1].rstrip() != "```" or len(lines) == 1:
            lines.append(input("| "))
    return "\n".join(lines)


def _typed(line: str, env: Env, raw: bool) -> str:
    r"""Return the line in the environment's answer format: a person need not type ``\boxed{}``."""
    answer_format = getattr(env.unwrapped, "answer_format", "plain")
    if raw or answer_format not in FORMATS or get_parser(answer_format)(line) is not None:
        return line
    return render(line, answer_format)
