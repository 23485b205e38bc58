"""Vector environments: `make_vec`, a bare loop, Gymnasium and gem-llm in one run.

    python benchmarks/throughput/vector.py --peer-python PYTHON_WITH_GYMNASIUM_AND_GEM_LLM

Steps per second of 64 environments that do nothing and of 64 games, and what slow environments cost
the others. Steps are counted per second of CPU time, and all sides are measured in turns of a few
hundredths of a second, the peers in a process of their own, so that a busy machine affects all of
them; the ratios are the result. Beside the delays of worker processes stands
what the machine gives: a message of the same size to each of two processes and back, and 63 round
trips one after another. They are written to ``vector.json`` beside this file.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import conditions

from gem_core.env.interface import Env
from gem_core.env.registration import make
from gem_core.env.spec import EnvSpec
from gem_core.execution.vector import make_vec
from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
RESULT = HERE / "vector.json"
N = 64
SLICE_S = 0.04
"""CPU seconds of one side before it is the turn of the next one."""
PAUSE_S = 0.05
"""How slow the slow environment is; so long nothing else happens, and caches get cold."""
PEERS = """
import importlib.util, json, sys, time
N = 64

def gymnasium_side():
    import gymnasium
    from gymnasium import spaces

    class Null(gymnasium.Env):
        observation_space = spaces.Discrete(2)
        action_space = spaces.Discrete(2)
        def reset(self, *, seed=None, options=None):
            return 0, {}
        def step(self, action):
            return 0, 0.0, False, False, {}

    envs = gymnasium.vector.SyncVectorEnv([Null for _ in range(N)])
    envs.reset(seed=0)
    actions = envs.action_space.sample()
    return lambda: envs.step(actions)

def gem_side():
    from gem.core import Env
    from gem.vector.sync_vector_env import SyncVectorEnv

    class Null(Env):
        def reset(self, seed=None):
            return "", {}
        def step(self, action):
            return "", 0.0, False, False, {}
        def sample_random_action(self):
            return ""

    envs = SyncVectorEnv(["null"] * N, [Null for _ in range(N)])
    envs.reset()
    actions = ["a"] * N
    return lambda: envs.step(actions)

sides = {}
for name, package, make in (
    ("gymnasium", "gymnasium", gymnasium_side), ("gem-llm", "gem", gem_side)
):
    if importlib.util.find_spec(package):
        sides[name] = make()
for line in sys.stdin:
    name = line.strip()
    if name not in sides:
        print("null", flush=True)
        continue
    began = time.process_time()
    count = 0
    while time.process_time() - began < 0.04:
        for _ in range(20):
            sides[name]()
        count += 20
    print(json.dumps(count * N / (time.process_time() - began)), flush=True)
"""
"""The peers, in an interpreter that has them; asked by name, it answers with steps per second."""


def rate(function: Callable[[], Any]) -> float:
    """Return steps per CPU second of a function that makes `N` of them."""
    began = time.process_time()
    count = 0
    while time.process_time() - began < SLICE_S:
        for _ in range(20):
            function()
        count += 20
    return count * N / (time.process_time() - began)


class Null(Env):
    """Does nothing."""

    fast = True

    def _reset(self, options: Any) -> Any:
        return "", {}

    def _step(self, action: str) -> Any:
        return "", 0.0, False, False, {}


class Sleeps(Env):
    """Waits in its reset, and in each step as long as the action says."""

    slow = True

    def __init__(self, reset_s: float = 0.0) -> None:
        self.reset_s = reset_s

    def _reset(self, options: Any) -> Any:
        time.sleep(self.reset_s)
        return "", {}

    def _step(self, action: str) -> Any:
        if action != "0":
            time.sleep(float(action))
        return "", 0.0, False, False, {}


NULL = EnvSpec("bench:Null-v0", "vector:Null")
SLEEPS = EnvSpec("bench:Sleeps-v0", "vector:Sleeps")


def null_sides() -> dict[str, Callable[[], Any]]:
    """Return the bare loop and the vector over environments that do nothing."""
    envs = make_vec(NULL, N)
    envs.reset(seed=0)
    actions = ["a"] * N
    single = [make(NULL) for _ in range(N)]
    for env in single:
        env.reset(seed=0)

    def bare() -> None:
        for env in single:
            env.step("a")

    return {"bare loop": bare, "make_vec": lambda: envs.step(actions)}


def guessing_sides() -> dict[str, Callable[[], Any]]:
    """Return GuessTheNumber, resets included: one environment, and a vector of 64."""
    rng = Random(0)
    actions = [f"\\boxed{{{rng.randint(1, 50)}}}" for _ in range(1 << 12)]
    single = make("game:GuessTheNumber-v0-hard")
    single.reset(seed=0)
    envs = make_vec("game:GuessTheNumber-v0-hard", N, autoreset="same_step")
    envs.reset(seed=0)
    at = {"single": 0, "vector": 0}

    def batch(side: str) -> list[str]:
        at[side] = (at[side] + N) % len(actions)
        return actions[at[side] : at[side] + N]

    def alone() -> None:
        for action in batch("single"):
            result = single.step(action)
            if result[2] or result[3]:
                single.reset()

    return {"one environment": alone, "make_vec": lambda: envs.step(batch("vector"))}


ECHO = """
import socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
size = int(sys.argv[2])
while True:
    count = 0
    while count < size:
        piece = connection.recv(1 << 18)
        if not piece:
            sys.exit()
        count += len(piece)
    connection.sendall(b"x" * size)
"""


def floor(processes: int, size: int, in_a_row: int = 1) -> dict[str, float]:
    """Return the milliseconds of round trips to processes that only send back what they get."""
    ours = []
    children = []
    for _ in range(processes):
        one, other = socket.socketpair()
        command = [sys.executable, "-c", ECHO, str(other.fileno()), str(size)]
        children.append(subprocess.Popen(command, pass_fds=[other.fileno()]))
        other.close()
        ours.append(one)
    spent = []
    for _ in range(60):
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        for _ in range(in_a_row):
            for one in ours:
                one.sendall(b"x" * size)
            for one in ours:
                count = 0
                while count < size:
                    count += len(one.recv(1 << 18))
        spent.append(1e3 * (time.perf_counter() - began))
    for one in ours:
        one.close()
    for child in children:
        child.wait()
    return summary(spent[1:])


def summary(values: list[float]) -> dict[str, float]:
    """Return median and smallest of some times."""
    return {"median": median(values), "best": min(values)}


def waits(backend: str) -> dict[str, Any]:
    """Return the milliseconds for which slow environments hold up the others."""
    figures: dict[str, Any] = {}
    with make_vec(SLEEPS, N, backend=backend) as envs:
        envs.reset(seed=0)
        spent = []
        for _ in range(60):
            began = time.perf_counter()
            envs.send([str(PAUSE_S), *["0"] * (N - 1)])
            ready = envs.recv(min_ready=N - 1)
            spent.append(1e3 * (time.perf_counter() - began))
            if len(ready.indices) < N - 1:
                raise RuntimeError("recv() returned too early.")
            envs.recv(min_ready=N - len(ready.indices))
        figures["63 of 64 ready"] = summary(spent)
    with make_vec(SLEEPS, 16, backend=backend, kwargs={"reset_s": 0.02}) as envs:
        envs.reset(seed=0)
        spent = []
        for _ in range(10):
            began = time.perf_counter()
            envs.reset(seed=0)
            spent.append(1e3 * (time.perf_counter() - began))
        figures["16 resets of 20 ms"] = summary(spent)
    with make_vec(SLEEPS, 2, backend=backend, deadline_s=0.5) as envs:
        envs.reset(seed=0)
        spent = []
        for _ in range(5):
            envs.reset(seed=0)
            began = time.perf_counter()
            steps = envs.step(["8", "0"])
            spent.append(1e3 * (time.perf_counter() - began))
            if steps.truncated.tolist() != [True, False]:
                raise RuntimeError("The hang did not end at its deadline.")
        figures["8 s hang, deadline 500 ms"] = summary(spent)
    return figures


def rates(peer: str | None, rounds: int) -> dict[str, Any]:
    """Return steps per second of all sides and the ratios, medians of the rounds."""
    null = null_sides()
    guess = guessing_sides()
    peers = Peers(peer)
    seen: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, function in null.items():
            seen.setdefault(f"null: {name}", []).append(rate(function))
        for name in ("gymnasium", "gem-llm"):
            value = peers.rate(name)
            if value is not None:
                seen.setdefault(f"null: {name}", []).append(value)
        for name, function in guess.items():
            seen.setdefault(f"guess: {name}", []).append(rate(function))
    peers.close()
    pairs = [(name, "null: bare loop") for name in seen if name.startswith("null")]
    pairs.append(("guess: make_vec", "guess: one environment"))
    ratios = {
        f"{a} / {b}": median(x / y for x, y in zip(seen[a], seen[b], strict=True))
        for a, b in pairs
        if a != b
    }
    return {
        "steps_per_s": {name: median(values) for name, values in seen.items()},
        "ratios": ratios,
    }


class Peers:
    """The interpreter with Gymnasium and gem-llm, where there is one."""

    def __init__(self, python: str | None) -> None:
        self._process = None
        if python is not None:
            pipe = subprocess.PIPE
            command = [python, "-c", PEERS]
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def rate(self, name: str) -> float | None:
        """Return steps per second of one peer."""
        if self._process is None:
            return None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        value: float | None = json.loads(self._process.stdout.readline())
        return value

    def close(self) -> None:
        """End the interpreter."""
        if self._process is not None:
            self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", help="an interpreter with gymnasium and gem-llm")
    parser.add_argument("--rounds", type=int, default=75)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    before = conditions.begin()
    figures = {
        **rates(options.peer_python, options.rounds),
        "waits_ms": {backend: waits(backend) for backend in ("thread", "process")},
        "floor_ms": {
            "32 calls to each of 2 processes and back": floor(2, 32 * 100),
            "63 round trips one after another": floor(1, 100, in_a_row=N - 1),
        },
    }
    conditions.write(RESULT, before, figures)


if __name__ == "__main__":
    main()
