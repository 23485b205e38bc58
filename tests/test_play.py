"""``gem-core play``: hints, turns taken back, untrusted text; in lines and on a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from gem_core.cli.play_screen import PlainScreen, RichScreen, short, visible
from gem_core.cli.play_session import PlaySession
from gem_core.env.interface import Env
from gem_core.env.registration import make
from gem_core.errors import EpisodeStateError, GemError

ENV = "game:TowerofHanoi-v0-easy"
STEERS = "\x1b[2J\x1b]0;owned\x07[bold red]no markup[/] \u202ereversed :smile:"


@pytest.fixture
def session():
    return PlaySession(make(ENV), ENV, 0)


def test_the_hints_of_the_expert_solve_the_game(session):
    while not session.over:
        session.step(session.hint())
    assert session.success and session.total == pytest.approx(1)


def test_a_hint_rests_on_what_was_really_played(session):
    first = session.hint()
    session.step(first)
    session.undo()
    session.step("\\boxed{A C}" if first != "\\boxed{A C}" else "\\boxed{A B}")
    while not session.over:
        session.step(session.hint())
    assert session.success


def test_a_turn_that_is_taken_back_leaves_no_trace(session):
    before = session.observation
    state = session.env.get_state()
    turn = session.step(session.hint())
    assert session.turns == [turn] and session.observation != before
    session.undo()
    assert (session.turns, session.observation, session.total) == ([], before, 0)
    assert session.env.get_state() == state


def test_the_end_of_an_episode_is_taken_back(session):
    while not session.over:
        session.step(session.hint())
    session.undo()
    assert not session.over and not session.success
    session.step(session.hint())
    assert session.success


def test_nothing_to_take_back(session):
    with pytest.raises(GemError, match="Nothing was played"):
        session.undo()


class Forgetful(Env):
    """Shows what could steer a terminal, and has no state."""

    def _reset(self, options):
        return STEERS, {}

    def _step(self, action):
        return f"{STEERS} {action}", 0.5, False, False, {}

    def get_state(self):
        raise EpisodeStateError("it forgets")


def test_an_environment_without_a_state_says_so():
    session = PlaySession(Forgetful(), "my:Env", 0)
    session.step("x")
    with pytest.raises(GemError, match="my:Env cannot take a turn back: it forgets"):
        session.undo()
    assert len(session.turns) == 1
    with pytest.raises(GemError, match="expert"):
        session.hint()


@pytest.mark.parametrize("screen", [PlainScreen, RichScreen])
def test_text_of_an_environment_does_not_steer_the_terminal(screen, capsys):
    session = PlaySession(Forgetful(), "my:Env", 0)
    screen = screen()
    screen.show(session)
    session.step("\x1b[31mred")
    screen.show_turn(session)
    screen.tell("hint \x1b[5m")
    screen.show(session)
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    assert "[bold red]no markup[/]" in shown and ":smile:" in shown
    assert "␛[2J␛]0;owned" in shown


def test_visible_and_short():
    assert visible("a\nb\tc\r") == "a\nb\tc␍"
    assert visible("\x9b\x7f") == "\\x9b\\x7f"
    assert short("x\n" * 100).endswith("...") and len(short("x" * 100)) == 60


def plain(*words, typed):
    command = [sys.executable, "-m", "gem_core.cli", "play", *words]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_in_plain_lines():
    out = plain(ENV, typed=":undo\n:hint\n:help\n:quit\nA B\n")
    assert "Nothing was played yet." in out
    assert "The expert would play: \\boxed{" in out
    assert ":undo    take the last turn back" in out
    assert "[reward" not in out  # what follows :quit is not played


def test_an_action_may_begin_with_a_colon():
    out = plain("game:GuessTheNumber-v0-easy", "--raw", typed="::quit\n")
    assert "[reward" in out


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, *words):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        command = [sys.executable, "-m", "gem_core.cli", "play", *words]
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.seen = ""

    def until(self, text):
        """Return what came before and with ``text``, since the last call."""
        end = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            ready, _, _ = select.select([self.master], [], [], 1)
            if ready:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the process has ended
                    assert text in self.seen, self.seen
        part, _, self.seen = self.seen.partition(text)
        return part + text

    def type(self, line):
        os.write(self.master, f"{line}\n".encode())

    def close(self):
        code = self.process.wait(30)
        os.close(self.master)
        return code


CLEAR = "\x1b[2J"


def test_on_a_terminal_the_board_is_drawn_in_place():
    terminal = Terminal(ENV)
    first = terminal.until("> ")
    assert CLEAR in first and "turn 0" in first and "╭" in first
    terminal.type(":hint")
    advice = re.search(r"The expert would play: (\\boxed\{.*?\})", terminal.until("> "))
    terminal.type(advice[1])
    second = terminal.until("turn 1") + terminal.until("> ")
    assert CLEAR in second and advice[1] in second
    terminal.type(":undo")
    assert "The last turn is taken back." in terminal.until("> ")
    terminal.type(":quit")
    assert terminal.close() == 0


def test_plain_lines_can_be_asked_for_on_a_terminal():
    terminal = Terminal(ENV, "--plain")
    assert CLEAR not in terminal.until("> ")
    terminal.type(":quit")
    assert terminal.close() == 0
