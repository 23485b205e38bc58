"""``check_env``: does an environment keep the promises that trainers rely on?

Each property is one function below; the first that does not hold raises `EnvCheckError`
with its name. Every environment of this package passes all of them.
"""

from __future__ import annotations

import json
import math
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any

from gem_core.core import Env
from gem_core.env_spec import EnvSpec
from gem_core.errors import ActionTypeError, EpisodeStateError, GemError, unknown
from gem_core.registration import make, spec

Trace = list[Any]

#: Actions that an agent may well produce and that must not disturb an environment.
MALFORMED = (
    "",
    " ",
    "\n",
    "\x00",
    "\\boxed{}",
    "\\boxed{ }",
    "\\boxed{",
    "\\boxed{\\boxed{",
    "\\boxed{\\boxed{1}}",
    "\\boxed{{{{1}}}}",
    "}}}}{{{{",
    "\\boxed{\x00}",
    "\\boxed{-1}",
    "\\boxed{0}",
    "\\boxed{1.5}",
    "\\boxed{1e9}",
    "\\boxed{nan}",
    "\\boxed{٣}",
    "\\boxed{²}",
    "\\boxed{\uff11 \uff11 \uff11}",
    "\\boxed{\ud800}",
    "\\boxed{🎲 🎲}",
    "\\boxed{999999999999999999999999999999}",
    "\\boxed{" + "9" * 5000 + "}",
    "\\boxed{" + "1 " * 5000 + "}",
    "\\boxed{A B C D E F G}",
    "\\boxed{%s %d {} {0}}",
    "\\boxed{__import__('os')}",
    "\\boxed{up}\\boxed{",
    "<answer></answer>",
    "<answer>" * 2000,
    "</answer><answer>",
    "\\boxed{" * 5000,
    "\\boxed{" * 5000 + "}" * 5000,
    "{" * 50000 + "}" * 50000,
    "x" * 100_000,
    "\\boxed{" + "x" * 100_000 + "}",
    "é😀\u202e\u0301" * 25_000,
    "\\boxed{" + "\n" * 100_000 + "}",
    "<answer>" + "y" * 100_000 + "</answer>",
)
WRONG_TYPES = (None, 1, 1.5, b"\\boxed{1}", ["\\boxed{1}"], {"action": "1"})
BAD_SEEDS = ("1", 1.5, [1])
GOOD_SEEDS = (0, -1, 2**32, -(2**70), True)
#: How much longer an observation may get because of a long action.
OBSERVATION_SLACK = 1000


class EnvCheckError(GemError, AssertionError):
    """A property that an environment does not have. ``check`` is its name."""

    def __init__(self, check: str, message: str):
        super().__init__(f"[{check}] {message}")
        self.check = check


class _Checked:
    """The environment under test: how to make one, and how long to play."""

    def __init__(self, factory: Callable[[], Env], seeds: Collection[int], steps: int):
        self.factory = factory
        self.seeds = tuple(seeds)
        self.steps = steps
        self.name = "?"

    def make(self) -> Env:
        return self.factory()

    def fail(self, message: str) -> EnvCheckError:
        check = sys._getframe(1).f_code.co_name.removeprefix("_check_")
        return EnvCheckError(check, f"{self.name}: {message}")


def check_env(
    env: str | EnvSpec | Callable[[], Env],
    *,
    seeds: Collection[int] = (0, 1, 2),
    steps: int = 40,
    skip: Collection[str] = (),
    **kwargs: Any,
) -> None:
    """Check that an environment behaves as trainers need it to.

    Args:
        env: A registered id, a spec, or a function that makes a new environment at each call.
        seeds: Seeds of the episodes that are played.
        steps: Steps of each such play; a finished episode is followed by the next.
        skip: Names of checks (see `CHECKS`) to leave out: ``("process",)`` for a factory
            that another process cannot import.
        **kwargs: Keyword arguments for `gem_core.registration.make`.

    Raises:
        EnvCheckError: A property does not hold; its name is in ``.check`` and in the message.

    >>> check_env("game:GuessTheNumber-v0-easy", skip=("process",))
    """
    for name in skip:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS, f"There are: {', '.join(CHECKS)}.")
    checked = _Checked(_factory(env, kwargs), seeds, steps)
    for name, check in CHECKS.items():
        if name in skip:
            continue
        try:
            check(checked)
        except EnvCheckError:
            raise
        except Exception as error:
            raise EnvCheckError(name, f"{checked.name}: raised {error!r:.300}") from error


class _Make:
    """A picklable factory of a spec."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec

    def __call__(self) -> Env:
        return make(self.spec)


def _factory(env: str | EnvSpec | Callable[[], Env], kwargs: dict[str, Any]) -> Callable[[], Env]:
    if isinstance(env, str):
        env = spec(env)
    if isinstance(env, EnvSpec):
        return _Make(env.replace(**kwargs))
    if kwargs:
        raise TypeError("Keyword arguments go with an id or a spec, not with a factory.")
    return env


def trace(env: Env, seed: int, steps: int, pause: Callable[[], None] | None = None) -> Trace:
    """Play random actions and return all that the environment said, as JSON data."""
    chooser = random.Random(seed)
    seen: Trace = [_plain(env.reset(seed=seed))]
    for _ in range(steps):
        seen.append(_advance(env, chooser))
        if pause is not None:
            pause()
    return seen


def _advance(env: Env, chooser: random.Random) -> Any:
    """Play one random action, and begin the next episode if that ended one."""
    action = env.random_action(chooser)
    result = env.step(action)
    if result[2] or result[3]:
        return _plain((action, result, env.reset()))
    return _plain((action, result))


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=repr, sort_keys=True))


def _difference(a: Trace, b: Trace) -> str:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            return f"first difference at step {i}: {x!s:.200} != {y!s:.200}"
    return "no difference"


def _check_api(c: _Checked) -> None:
    env = c.make()
    if not isinstance(env, Env):
        raise c.fail(f"made a {type(env).__name__}, which is not a gem_core.Env.")
    c.name = repr(env)
    result = env.reset(seed=c.seeds[0])
    if not (isinstance(result, tuple) and len(result) == 2):
        raise c.fail(f"reset() must return (obs, info), not {result!r:.100}.")
    _check_obs_info(c, *result)
    chooser = random.Random(0)
    for _ in range(c.steps):
        result_ = env.step(env.random_action(chooser))
        if not (isinstance(result_, tuple) and len(result_) == 5):
            raise c.fail(f"step() must return a 5-tuple, not {result_!r:.100}.")
        obs, reward, terminated, truncated, info = result_
        _check_obs_info(c, obs, info)
        if type(reward) not in (float, int) or not math.isfinite(reward):
            raise c.fail(f"the reward must be a finite float, not {reward!r}.")
        if type(terminated) is not bool or type(truncated) is not bool:
            raise c.fail("terminated and truncated must be bool.")
        if terminated or truncated:
            env.reset()


def _check_obs_info(c: _Checked, obs: Any, info: Any) -> None:
    if not isinstance(obs, str):
        raise EnvCheckError("api", f"{c.name}: an observation must be a str, not {obs!r:.100}.")
    if type(info) is not dict or not all(isinstance(k, str) for k in info):
        raise EnvCheckError("api", f"{c.name}: info must be a dict with str keys: {info!r:.100}.")
    if not isinstance(info.get("suffix", ""), str):
        raise EnvCheckError("api", f"{c.name}: info['suffix'] must be a str.")
    if info.get("error") not in (None, "invalid_format", "invalid_action"):
        raise EnvCheckError("api", f"{c.name}: unknown info['error'] {info['error']!r}.")


def _check_seeds(c: _Checked) -> None:
    env = c.make()
    for seed in GOOD_SEEDS:
        env.reset(seed=seed)
    for bad in BAD_SEEDS:
        try:
            env.reset(seed=bad)  # type: ignore[arg-type]
        except TypeError:
            continue
        raise c.fail(f"reset(seed={bad!r}) must raise TypeError.")


def _check_determinism(c: _Checked) -> None:
    one, two = c.make(), c.make()
    for seed in c.seeds:
        first = trace(one, seed, c.steps)
        random.seed(seed + 1)  # an environment that reads the global generator differs now
        for other in (trace(one, seed, c.steps), trace(two, seed, c.steps)):
            if first != other:
                raise c.fail(f"seed {seed} gave two episodes; {_difference(first, other)}")


def _check_interleaved(c: _Checked) -> None:
    alone = [trace(c.make(), seed, c.steps) for seed in c.seeds]
    envs = [c.make() for _ in c.seeds]
    choosers = [random.Random(seed) for seed in c.seeds]
    mixed: list[Trace] = [
        [_plain(env.reset(seed=seed))] for env, seed in zip(envs, c.seeds, strict=True)
    ]
    for _ in range(c.steps):
        for env, chooser, seen in zip(envs, choosers, mixed, strict=True):
            seen.append(_advance(env, chooser))
    for seed, a, b in zip(c.seeds, alone, mixed, strict=True):
        if a != b:
            raise c.fail(f"seed {seed} differs among other instances; {_difference(a, b)}")


def _check_threads(c: _Checked) -> None:
    alone = [trace(c.make(), seed, c.steps) for seed in c.seeds]
    seen: dict[int, Trace | BaseException] = {}

    def play(seed: int) -> None:
        jitter = random.Random(seed)
        try:
            seen[seed] = trace(
                c.make(), seed, c.steps, lambda: time.sleep(jitter.random() * 0.0005)
            )
        except BaseException as error:
            seen[seed] = error

    threads = [threading.Thread(target=play, args=(seed,)) for seed in c.seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in zip(c.seeds, alone, strict=True):
        got = seen[seed]
        if isinstance(got, BaseException):
            raise c.fail(f"raised in a thread: {got!r}") from got
        if got != expected:
            raise c.fail(f"seed {seed} differs in a thread; {_difference(expected, got)}")


def _check_process(c: _Checked) -> None:
    try:
        job = pickle.dumps((c.factory, c.seeds, c.steps))
    except Exception as error:
        raise c.fail(
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
        raise c.fail(f"failed in another process:\n{child.stderr.decode()[-2000:]}")
    for seed, other in zip(c.seeds, json.loads(child.stdout), strict=True):
        here = trace(c.make(), seed, c.steps)
        if here != other:
            raise c.fail(f"seed {seed} differs in another process; {_difference(here, other)}")


_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import pickle
from gem_core.checker import trace
factory, seeds, steps = pickle.load(sys.stdin.buffer)
print(json.dumps([trace(factory(), seed, steps) for seed in seeds]))
"""


def _check_state(c: _Checked) -> None:
    for seed in c.seeds:
        env, chooser = c.make(), random.Random(seed)
        fresh = c.make()
        fresh.set_state(json.loads(json.dumps(env.get_state())))
        env.reset(seed=seed)
        for _ in range(4):
            _advance(env, chooser)
            state = env.get_state()
            try:
                stored = json.loads(json.dumps(state))
            except (TypeError, ValueError) as error:
                raise c.fail(f"get_state() is not JSON data: {error}") from error
            ahead = deepcopy(chooser)
            original = [_advance(env, ahead) for _ in range(c.steps)]
            for other in (c.make(), fresh, env):
                other.set_state(stored)
                ahead = deepcopy(chooser)
                restored = [_advance(other, ahead) for _ in range(c.steps)]
                if restored != original:
                    raise c.fail(f"goes on differently; {_difference(original, restored)}")
            env.set_state(state)
        _check_state_of_ended(c, env, chooser)


def _check_state_of_ended(c: _Checked, env: Env, chooser: random.Random) -> None:
    if not _play_to_end(env, chooser):
        return
    other = c.make()
    other.set_state(env.get_state())
    try:
        other.step(env.random_action(chooser))
    except EpisodeStateError:
        return
    raise EnvCheckError("state", f"{c.name}: the state of an ended episode can be stepped.")


def _play_to_end(env: Env, chooser: random.Random, limit: int = 1000) -> dict[str, Any] | None:
    """Play on to the end of the episode and return the last info (``None`` at the limit)."""
    for _ in range(limit):
        _, _, terminated, truncated, info = env.step(env.random_action(chooser))
        if terminated or truncated:
            return info
    return None


def _check_pickle(c: _Checked) -> None:
    env, chooser = c.make(), random.Random(0)
    pickle.loads(pickle.dumps(env))
    env.reset(seed=c.seeds[0])
    _advance(env, chooser)
    copies = [pickle.loads(pickle.dumps(env)), deepcopy(env)]
    original = [_advance(env, deepcopy(chooser)) for _ in range(c.steps)]
    for other in copies:
        copied = [_advance(other, deepcopy(chooser)) for _ in range(c.steps)]
        if copied != original:
            raise c.fail(f"a copy goes on differently; {_difference(original, copied)}")


def _check_malformed(c: _Checked) -> None:
    """No malformed action raises, hangs or lets the observation grow."""
    problems: list[EnvCheckError] = []
    reached = ""

    def play() -> None:
        nonlocal reached
        env = c.make()
        env.reset(seed=c.seeds[0])
        normal = max(len(str(x)) for x in trace(env, c.seeds[0], c.steps))
        for action in MALFORMED:
            reached = action
            env.reset(seed=c.seeds[0])
            try:
                obs, _, _, _, info = env.step(action)
            except Exception as error:
                problems.append(c.fail(f"step({action!r:.60}) raised {error!r:.200}"))
                return
            size = len(obs) + len(info.get("suffix", ""))
            if size > normal + OBSERVATION_SLACK:
                problems.append(c.fail(f"step({action!r:.60}) gave an observation of {size} chars"))
                return

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    thread.join(timeout=120)
    if thread.is_alive():
        raise c.fail(f"step({reached!r:.60}) does not come back.")
    if problems:
        problems[0].check = "malformed"
        raise problems[0]


def _check_episode_state(c: _Checked) -> None:
    """Calls out of order and actions of a wrong type raise the right errors."""
    env, chooser = c.make(), random.Random(0)
    _expect(c, EpisodeStateError, env, "\\boxed{1}", "step() before reset()")
    env.reset(seed=c.seeds[0])
    for wrong in WRONG_TYPES:
        _expect(c, ActionTypeError, env, wrong, f"step({wrong!r})")
    env.step(_Text(env.random_action(chooser)))
    env.reset(seed=c.seeds[0])
    if _play_to_end(env, chooser) is not None:
        _expect(c, EpisodeStateError, env, env.random_action(chooser), "step() after the end")
    env.close()
    env.close()
    _expect(c, EpisodeStateError, env, "\\boxed{1}", "step() after close()")


class _Text(str):
    """A subclass of ``str``, as tokenizers and templates return."""


def _expect(c: _Checked, error: type[Exception], env: Env, action: Any, what: str) -> None:
    try:
        env.step(action)
    except error:
        return
    except Exception as other:
        raise EnvCheckError(
            "episode_state", f"{c.name}: {what} raised {other!r:.100}, not {error.__name__}."
        ) from other
    raise EnvCheckError("episode_state", f"{c.name}: {what} must raise {error.__name__}.")


def _check_global_rng(c: _Checked) -> None:
    numpy = sys.modules.get("numpy")
    before = random.getstate()
    numpy_before = None if numpy is None else numpy.random.get_state()[1].tolist()
    env = c.make()
    for seed in c.seeds:
        trace(env, seed, c.steps)
    if random.getstate() != before:
        raise c.fail("changed the state of the global random module; draw from self.rng.")
    if numpy is not None and numpy.random.get_state()[1].tolist() != numpy_before:
        raise c.fail("changed the state of numpy.random; draw from self.rng.")


def _check_success(c: _Checked) -> None:
    env = c.make()
    for seed in c.seeds:
        env.reset(seed=seed)
        info = _play_to_end(env, random.Random(seed))
        if info is not None and type(info.get("success")) is not bool:
            raise c.fail("info['success'] must be a bool at the end of an episode.")


def _check_infos_kept(c: _Checked) -> None:
    """What was returned does not change later."""
    env, chooser = c.make(), random.Random(0)
    kept = [env.reset(seed=c.seeds[0])[1]]
    copies = [deepcopy(kept[0])]
    for _ in range(c.steps):
        result = env.step(env.random_action(chooser))
        kept.append(result[4])
        copies.append(deepcopy(result[4]))
        if result[2] or result[3]:
            break
    if kept != copies:
        raise c.fail("an info dict was changed after it was returned; make a new one each step.")


def _check_random_action(c: _Checked) -> None:
    """Random actions are well-formed, drawn from the caller's generator, and change nothing."""
    env = c.make()
    for seed in c.seeds:
        env.reset(seed=seed)
        chooser = random.Random(seed)
        for _ in range(c.steps):
            state, twin = env.get_state(), deepcopy(chooser)
            action = env.random_action(chooser)
            if env.get_state() != state:
                raise c.fail("random_action() changed the state of the environment.")
            if env.random_action(twin) != action:
                raise c.fail("random_action() depends on more than the generator given to it.")
            _, _, terminated, truncated, info = env.step(action)
            if info.get("error") == "invalid_format":
                raise c.fail(f"random action {action!r:.60} has the wrong format.")
            if terminated or truncated:
                env.reset()


#: Name -> check, in the order in which they run.
CHECKS: dict[str, Callable[[_Checked], None]] = {
    "api": _check_api,
    "seeds": _check_seeds,
    "determinism": _check_determinism,
    "interleaved": _check_interleaved,
    "threads": _check_threads,
    "process": _check_process,
    "state": _check_state,
    "pickle": _check_pickle,
    "malformed": _check_malformed,
    "episode_state": _check_episode_state,
    "global_rng": _check_global_rng,
    "success": _check_success,
    "infos_kept": _check_infos_kept,
    "random_action": _check_random_action,
}
