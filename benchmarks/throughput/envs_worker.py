"""Measure one side (gem-core, gem-llm or TextArena), one request per line of standard input.

``envs.py`` starts it with the Python of that side. The answers are JSON lines on standard output;
what the package itself prints is discarded.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from importlib import import_module

from envs_cases import CASES, actions, words


def stub_nltk() -> None:
    """Replace the NLTK corpora, which need a download, by the word lists of gem-core.

    The stub is faster than the corpus, whose file is parsed at each call.
    """
    import nltk

    lists = {"en-basic": words("basic"), "en": words("english")}

    class Words:
        @staticmethod
        def words(name: str = "en") -> list[str]:
            return lists[name]

    nltk.download = lambda *args, **kwargs: True
    nltk.corpus.words = Words()
    nltk.pos_tag = lambda tokens: [(token, "NN") for token in tokens]


class Side:
    """How to make, reset and step the environments of one package."""

    def __init__(self, name: str):
        self.name = name
        if name != "gem-core":
            stub_nltk()
        self.package = import_module(
            {"gem-core": "gem_core", "gem-llm": "gem", "textarena": "textarena"}[name]
        )

    def make(self, case: str, env_id: str | None = None):
        if self.name == "textarena":
            module, cls, kwargs = CASES[case][1]
            env = getattr(import_module(f"textarena.envs.{module}.env"), cls)(**kwargs)
            return env, lambda seed=None: env.reset(1, seed=seed), self._textarena_step(env)
        env = self.package.make(env_id or CASES[case][0])
        return env, lambda seed=None: env.reset(seed=seed), env.step

    @staticmethod
    def _textarena_step(env):
        def step(action: str):
            done, _ = env.step(action)
            env.get_observation()  # a player must request it
            return None, None, done, False

        return step


def steps_per_s(side: Side, case: str, count: int, budget: float) -> float:
    """Return the steps per second, without outliers (steps above 1 ms or 20 medians)."""
    _, reset, step = side.make(case)
    todo = actions(case, side.name)
    clock = time.perf_counter_ns
    times = []
    empty = min(-clock() + clock() for _ in range(1000))
    reset(0)
    end = time.thread_time() + budget
    for i in range(count):
        action = todo[i % len(todo)]
        begin = clock()
        result = step(action)
        times.append(clock() - begin - empty)
        if result[2] or result[3]:
            reset(i)
            if time.thread_time() > end:
                break
    limit = min(20 * statistics.median(times), 1e6)
    return 1e9 / statistics.fmean(t for t in times if t <= max(limit, min(times)))


def resets_per_s(side: Side, case: str, env_id: str, budget: float) -> float:
    _, reset, _ = side.make(case, env_id)
    reset(0)
    count = 0
    begin = time.thread_time()
    while time.thread_time() - begin < budget or not count:
        reset(count)
        count += 1
    return count / (time.thread_time() - begin)


def reset_ms(side: Side, case: str, env_id: str, count: int) -> list[float]:
    """Return the CPU milliseconds of each of ``count`` resets."""
    _, reset, _ = side.make(case, env_id)
    milliseconds = []
    for seed in range(count):
        begin = time.thread_time()
        reset(seed)
        milliseconds.append(1e3 * (time.thread_time() - begin))
    return milliseconds


def kilobytes(side: Side, case: str, env_id: str, count: int) -> float:
    """Return the growth of resident memory per environment after one reset, in a new fork."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        answer = os.read(read, 100)
        os.close(read)
        os.waitpid(child, 0)
        return float(answer)

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def fresh(seed: int):
        env, reset, _ = side.make(case, env_id)
        reset(seed)
        return env

    try:
        kept = [fresh(seed) for seed in range(50)]
        before = resident()
        kept += [fresh(seed) for seed in range(50, 50 + count)]
        os.write(write, str((resident() - before) / count / 1024).encode())
    finally:
        os._exit(0)


def rooms(side: Side, env_id: str, count: int) -> list[str]:
    """Return rooms of Sokoban as text."""
    _, reset, _ = side.make("Sokoban", env_id)
    return [reset(seed)[1]["suffix"] for seed in range(count)]


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    side = Side(sys.argv[1])
    functions = {f.__name__: f for f in (steps_per_s, resets_per_s, reset_ms, kilobytes, rooms)}
    for request in sys.stdin:
        name, *arguments = json.loads(request)
        print(json.dumps(functions[name](side, *arguments)), file=out, flush=True)


if __name__ == "__main__":
    main()
