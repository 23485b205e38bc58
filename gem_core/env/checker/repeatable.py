"""Checks that a seed gives the same episode: again, beside others, in a thread, in a process."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import threading
import time

from gem_core.env.checker.subject import Subject, Trace, advance, as_json, difference, shown, trace


def check_determinism(subject: Subject) -> None:
    """A seed gives the same episode again, in the same and in another instance."""
    one = subject.make()
    two = subject.make()
    for seed in subject.seeds:
        first = trace(one, seed, subject.steps)
        random.seed(seed + 1)  # an environment that reads the global generator differs now
        for other in (trace(one, seed, subject.steps), trace(two, seed, subject.steps)):
            if first != other:
                raise subject.fail(f"seed {seed} gave two episodes; {difference(first, other)}")


def check_interleaved(subject: Subject) -> None:
    """Episodes of several instances that are played in turns do not influence each other."""
    alone = _alone(subject)
    envs = [subject.make() for _ in subject.seeds]
    choosers = [random.Random(seed) for seed in subject.seeds]
    mixed: list[Trace] = [
        [as_json(env.reset(seed=seed))] for env, seed in zip(envs, subject.seeds, strict=True)
    ]
    for _ in range(subject.steps):
        for env, chooser, results in zip(envs, choosers, mixed, strict=True):
            results.append(advance(env, chooser))
    for seed, expected, actual in zip(subject.seeds, alone, mixed, strict=True):
        if expected != actual:
            raise subject.fail(
                f"seed {seed} differs among other instances; {difference(expected, actual)}"
            )


def check_threads(subject: Subject) -> None:
    """Episodes that are played in threads at the same time do not influence each other."""
    alone = _alone(subject)
    played: dict[int, Trace | BaseException] = {}

    def play(seed: int) -> None:
        jitter = random.Random(seed)

        def pause() -> None:
            time.sleep(jitter.random() * 0.0005)

        try:
            played[seed] = trace(subject.make(), seed, subject.steps, pause)
        except BaseException as error:
            played[seed] = error

    threads = [threading.Thread(target=play, args=(seed,)) for seed in subject.seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in zip(subject.seeds, alone, strict=True):
        actual = played[seed]
        if isinstance(actual, BaseException):
            raise subject.fail(f"raised in a thread: {shown(actual)}") from actual
        if actual != expected:
            raise subject.fail(f"seed {seed} differs in a thread; {difference(expected, actual)}")


def check_process(subject: Subject) -> None:
    """A seed gives the same episode in another process."""
    try:
        job = pickle.dumps((subject.factory, subject.seeds, subject.steps))
    except Exception as error:
        raise subject.fail(
            f"the factory cannot be sent to another process ({error}); use a function of a module "
            "or skip=('process',)."
        ) from error
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(sys.path)],
        input=job,
        capture_output=True,
        check=False,
    )
    if child.returncode:
        output = child.stderr.decode()[-2000:]
        raise subject.fail(f"failed in another process:\n{output}")
    for seed, other in zip(subject.seeds, json.loads(child.stdout), strict=True):
        here = trace(subject.make(), seed, subject.steps)
        if here != other:
            raise subject.fail(f"seed {seed} differs in another process; {difference(here, other)}")


_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import pickle
from gem_core.env.checker import trace
factory, seeds, steps = pickle.load(sys.stdin.buffer)
print(json.dumps([trace(factory(), seed, steps) for seed in seeds]))
"""


def check_global_rng(subject: Subject) -> None:
    """The global generators of ``random`` and NumPy are not used."""
    numpy = sys.modules.get("numpy")
    before = random.getstate()
    numpy_before = None if numpy is None else numpy.random.get_state()[1].tolist()
    env = subject.make()
    for seed in subject.seeds:
        trace(env, seed, subject.steps)
    if random.getstate() != before:
        raise subject.fail("changed the state of the global random module; draw from self.rng.")
    if numpy is not None and numpy.random.get_state()[1].tolist() != numpy_before:
        raise subject.fail("changed the state of numpy.random; draw from self.rng.")


def _alone(subject: Subject) -> list[Trace]:
    """Return the trace of each seed in an instance of its own."""
    return [trace(subject.make(), seed, subject.steps) for seed in subject.seeds]
