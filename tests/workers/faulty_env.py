"""An environment with faults that its actions ask for; workers import it by its file's name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from gem_core.env.interface import Env

ID = "faulty:Env-v0"


class Faulty(Env):
    """Draws a number per turn; ``fault <kind>`` breaks it in that way."""

    _state_fields = ("turns",)

    def __init__(
        self,
        slow: bool = False,
        turns: int = 3,
        build: str = "",
        reset_s: float = 0.0,
        at_reset: str = "",
        at_close: str = "",
    ):
        super().__init__()
        self.at_reset = at_reset
        self.at_close = at_close
        self.slow = slow
        self.last = turns
        self.turns = 0
        self.reset_s = reset_s
        break_in(build)

    def _reset(self, options):
        self.turns = 0
        break_in(self.at_reset)
        time.sleep(self.reset_s)
        return f"draw {self.rng.random()}", {"pid": os.getpid()} if options else {}

    def _step(self, action):
        break_in(action)
        self.turns += 1
        over = self.turns >= self.last
        info = {"success": True} if over else {}
        return f"{action}: {self.rng.random()}", self.rng.random(), over, False, info

    def _close(self):
        break_in(self.at_close)

    def random_action(self, rng):
        return f"a{rng.random()}"


class Ends(BaseException):
    """What a foreign package may raise where it should raise an error."""


class Unshown(Exception):
    """An exception whose message ends the program that asks for it."""

    def __str__(self):
        raise SystemExit(5)

    __repr__ = __str__


class EndsReader:
    """A value that ends the program that unpickles it."""

    def __reduce__(self):
        return sys.exit, (6,)


class Unpicklable(Faulty):
    def _step(self, action):
        return "x", 0.0, True, False, {"function": lambda: 1}


def meet(number: str, me: str, place: str) -> None:
    """Wait until `number` callers have left a file in the directory `place`."""
    Path(place, me).touch()
    while len(list(Path(place).iterdir())) < int(number):
        time.sleep(0.01)


def break_in(kind: str) -> None:
    """Raise, hang or end the process."""
    if kind == "exception":
        raise KeyError("broken on purpose")
    if kind == "memory":
        raise MemoryError("no memory on purpose")
    if kind.startswith("meet "):
        meet(*kind.split(" ")[1:])
    if kind == "nap":
        time.sleep(1.0)
    if kind == "hang":
        time.sleep(3600)
    if kind == "busy":
        while True:
            pass
    if kind == "regex":  # one call of C, in which no other thread of Python runs
        re.match(r"(a+)+$", "a" * 60 + "b")
    if kind == "exit":
        os._exit(7)
    if kind == "base":
        raise Ends("on purpose")
    if kind == "generator":
        raise GeneratorExit("on purpose")
    if kind == "unshown":
        raise Unshown
    if kind == "surrogates":
        raise OSError("no file \udcff")
    if kind == "quit":
        raise SystemExit(3)  # libraries put their own in the place of sys.exit
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def make(*arguments, **named):
    return Faulty(*arguments, **named)


def unpicklable():
    return Unpicklable()


FAST = "faulty:Fast-v0"


class Fast(Faulty):
    """Promises not to block, so that its calls are made one after another."""

    fast = True


def fast(*arguments):
    return Fast(*arguments)


class WithChild(Faulty):
    """Has a process of its own."""

    def _reset(self, options):
        self.child = subprocess.Popen(["sleep", "600"])
        obs, info = super()._reset(options)
        return obs, {**info, "child": self.child.pid}


def with_child(*arguments):
    return WithChild(*arguments)


HEAVY = "faulty:Heavy-v0"


class Heavy(Faulty):
    """Uses a CPU for 0.15 s in its only step."""

    fast = True

    def _step(self, action):
        ends_at = time.process_time() + 0.15
        while time.process_time() < ends_at:
            pass
        return "done", 1.0, True, False, {"success": True}


class EndsCaller(Faulty):
    """Its second step returns what ends the program that unpickles it."""

    def _step(self, action):
        obs, reward, over, cut, info = super()._step(action)
        return obs, reward, over, cut, {**info, "value": EndsReader()}


def ends_caller():
    return EndsCaller()
