"""``gem-core play``: play an environment, or watch a scripted player."""

from __future__ import annotations

import argparse
from contextlib import closing

from gem_core.cli.check import is_module
from gem_core.cli.play_screen import COMMANDS, Screen, open_screen, visible
from gem_core.cli.play_session import PlaySession
from gem_core.env.interface import Env
from gem_core.env.parsing import FORMATS, get_parser, render
from gem_core.env.registration import make
from gem_core.errors import GemError


def play(arguments: argparse.Namespace) -> int:
    """Play one episode in the terminal; the end of the input ends it."""
    is_module(arguments.env.partition(":")[0])  # a class of this folder can be imported then
    with closing(make(arguments.env)) as env:
        session = PlaySession(env, arguments.env, arguments.seed)
        screen = open_screen(arguments.plain)
        if arguments.player == "person":
            return _person(session, screen, arguments.raw)
        return _play_scripted(session, screen, arguments.player)


def _play_scripted(session: PlaySession, screen: Screen, kind: str) -> int:
    """Let a scripted player play."""
    from gem_core.envs.players import get_player

    player = get_player(kind, session.env_id, seed=session.seed, env=session.env)
    player.reset(*session.latest)
    while not session.over:
        screen.show(session)
        action = player.act(*session.latest)
        print(f"> {visible(action)}")
        session.step(action)
        screen.show_turn(session)
    screen.end(session)
    return 0


def _person(session: PlaySession, screen: Screen, raw: bool) -> int:
    """Let a person play: actions and `COMMANDS`."""
    screen.show(session)
    while True:
        try:
            line = _read()
        except EOFError:
            print()
            return 0
        if line == ":quit":
            return 0
        if line in COMMANDS:
            screen.tell(_command(session, line))
            screen.show(session)
            continue
        session.step(
            _format_line(line.removeprefix(":") if line[:2] == "::" else line, session.env, raw)
        )
        screen.show_turn(session)
        if session.over:
            screen.end(session)
            return 0
        screen.show(session)


def _command(session: PlaySession, line: str) -> str:
    """Carry a command out; return what to tell of it."""
    try:
        if line == ":undo":
            session.undo()
            return "The last turn is taken back."
        if line == ":hint":
            return f"The expert would play: {session.hint()}"
    except GemError as error:
        return str(error)
    listed = "\n".join(f"{name:8} {meaning}" for name, meaning in COMMANDS.items())
    return f"{session.instructions}\n\n{listed}\n(an action that begins with a colon: type two)"


def _read() -> str:
    """Read one line, or all lines of a fenced block if the first line opens one."""
    lines = [input("> ")]
    if lines[0].startswith("```"):
        while lines[-1].rstrip() != "```" or len(lines) == 1:
            lines.append(input("| "))
    return "\n".join(lines)


def _format_line(line: str, env: Env, raw: bool) -> str:
    r"""Return the line in the environment's answer format: a person need not type ``\boxed{}``."""
    answer_format = getattr(env.unwrapped, "answer_format", "plain")
    if raw or answer_format not in FORMATS or get_parser(answer_format)(line) is not None:
        return line
    return render(line, answer_format)
