"""What a person who plays sees: a screen that is drawn anew each turn, or plain lines.

Everything that an environment shows is untrusted text: control characters, with which a terminal
could be steered, become visible, and nothing is read as markup.
"""

from __future__ import annotations

import sys
import unicodedata
from importlib.util import find_spec
from typing import Any, Protocol

from gem_core.cli.play_session import PlaySession

COMMANDS = {
    ":hint": "what the expert would do",
    ":undo": "take the last turn back",
    ":help": "the instructions again, and this list",
    ":quit": "end",
}
"""What a person may type besides an action; before an action with a colon a second one is typed."""
_KEPT = "\n\t"
_LAST_TURNS = 8
_LONGEST_ACTION = 60


def visible(text: str) -> str:
    r"""Return ``text`` with its control characters made visible.

    >>> visible("a\x1b[2Jb\tc")
    'a␛[2Jb\tc'
    """
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"\\x{code:02x}"


def short(action: str) -> str:
    """Return an action in one line."""
    line = visible(action).replace("\n", " ")
    return line if len(line) <= _LONGEST_ACTION else line[: _LONGEST_ACTION - 3] + "..."


def commands() -> str:
    """Return the commands in one line."""
    return "   ".join(f"{name} {meaning}" for name, meaning in COMMANDS.items())


class Screen(Protocol):
    """Where an episode is shown."""

    def show(self, session: PlaySession) -> None:
        """Show the present state."""

    def tell(self, text: str) -> None:
        """Show a message of the game's frame: a hint, an error, the help."""

    def show_turn(self, session: PlaySession) -> None:
        """Show the turn that was just played."""

    def end(self, session: PlaySession) -> None:
        """Show how the episode ended."""


class PlainScreen:
    """Lines, one after another; for pipes, files and terminals without `rich`."""

    def show(self, session: PlaySession) -> None:
        """Print the observation."""
        print(visible(session.observation))

    def tell(self, text: str) -> None:
        """Print a message."""
        print(visible(text))

    def show_turn(self, session: PlaySession) -> None:
        """Print the reward of the last turn."""
        print(f"  [reward {session.turns[-1].reward:g}]")

    def end(self, session: PlaySession) -> None:
        """Print the last observation and the result."""
        print(visible(session.observation))
        print(result(session))


class RichScreen:
    """A screen that is cleared for every turn: the history above, the board below it."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._message = ""

    def show(self, session: PlaySession) -> None:
        """Draw history, observation and the last message."""
        from rich.panel import Panel
        from rich.text import Text

        self._console.clear()
        self._console.print(Text(self._head(session), style="bold"))
        if session.turns:
            self._console.print(self._history(session))
        board = Text(visible(session.observation))
        self._console.print(Panel(board, title=Text(session.env_id), title_align="left"))
        if self._message:
            self._console.print(Text(self._message, style="yellow"))
            self._message = ""
        self._console.print(Text(commands(), style="dim"))

    def tell(self, text: str) -> None:
        """Keep a message for the next drawing."""
        self._message = visible(text)

    def show_turn(self, session: PlaySession) -> None:
        """Do nothing: the history shows it."""

    def end(self, session: PlaySession) -> None:
        """Draw the end and the result."""
        from rich.text import Text

        self.show(session)
        self._console.print(Text(result(session), style="green" if session.success else "red"))

    def _head(self, session: PlaySession) -> str:
        return f"seed {session.seed}   turn {len(session.turns)}   reward {session.total:g}"

    def _history(self, session: PlaySession) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        first = max(0, len(session.turns) - _LAST_TURNS)
        if first:
            table.add_row(Text("..."), Text(f"{first} earlier turns"), Text(""))
        for number, turn in enumerate(session.turns[first:], first + 1):
            table.add_row(Text(f"{number}."), Text(short(turn.action)), Text(f"{turn.reward:+g}"))
        return table


def result(session: PlaySession) -> str:
    """Return the last line of an episode."""
    solved = "Solved" if session.success else "Not solved"
    return f"{solved} in {len(session.turns)} turns, reward {session.total:g}."


def open_screen(plain: bool) -> Screen:
    """Return the screen for this terminal.

    Args:
        plain: lines also where `rich` and a terminal are there.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if plain or not terminal or find_spec("rich") is None:
        return PlainScreen()
    return RichScreen()
