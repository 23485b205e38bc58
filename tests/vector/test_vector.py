"""Vector environments: one behaviour in every backend, and none waits for another."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

from gem_core.env.registration import make
from gem_core.env.remote.errors import RemoteError
from gem_core.env.spec import EnvSpec
from gem_core.errors import (
    ActionTypeError,
    EpisodeStateError,
    MissingDependencyError,
    UnknownNameError,
)
from gem_core.execution.vector import make_vec
from gem_core.execution.vector.make import mix
from gem_core.execution.workers.ray_process import leave_cluster

FOLDER = str(Path(__file__).parent)
if FOLDER not in sys.path:
    sys.path.insert(0, FOLDER)  # workers import from the same folders
WAITS = EnvSpec("vec:Waits-v0", "vec_envs:Waits")
FAST = EnvSpec("vec:Fast-v0", "vec_envs:Fast")
HAVE_RAY = ("verl", "openrlhf")
"""Trainers that bring Ray: with them the same tests run in workers of a Ray cluster."""


def pytest_generate_tests(metafunc):
    with_ray = metafunc.config.getoption("trainer") in HAVE_RAY
    separate = ["process", *["ray"] * with_ray]
    parameters = {
        "backend": ["sync", "thread", *separate],
        "concurrent": ["thread", *separate],
        "separate": separate,
    }
    for name in parameters.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, parameters[name])


@pytest.fixture(autouse=True, scope="module")
def cluster(pytestconfig):
    """A Ray cluster for all tests of this file, where Ray is installed."""
    if pytestconfig.getoption("trainer") not in HAVE_RAY:
        yield
        return
    import ray

    began_it = not ray.is_initialized()
    if began_it:
        ray.init(include_dashboard=False, log_to_driver=False)
    yield
    if began_it:
        leave_cluster()
        ray.shutdown()


def plain(steps):
    return [list(part) for part in steps]


def single(envs, seed, plan, autoreset):
    """What the environments return alone, with Gymnasium's rules of autoreset written out."""
    over = set()
    begun = [env.reset(seed=seed + i) for i, env in enumerate(envs)]
    rows = [[obs for obs, _ in begun], [info for _, info in begun]]
    played = []
    for actions in plan:
        row = []
        for i, (env, action) in enumerate(zip(envs, actions, strict=True)):
            if i in over:
                obs, info = env.reset(seed=77 if autoreset == "disabled" else None)
                result = (obs, 0.0, False, False, info)
                over.discard(i)
                if autoreset == "disabled":
                    result = env.step(action)
            else:
                result = env.step(action)
            if result[2] or result[3]:
                if autoreset == "same_step":
                    obs, info = env.reset()
                    info = {**info, "final_obs": result[0], "final_info": result[4]}
                    result = (obs, *result[1:4], info)
                else:
                    over.add(i)
            row.append(result)
        played.append([list(part) for part in zip(*row, strict=True)])
    return rows, played


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("ids", ["game:GuessTheNumber-v0-easy", WAITS])
def test_every_backend_plays_what_the_environments_play_alone(backend, ids, autoreset):
    rng = Random(0)
    plan = [[f"\\boxed{{{rng.randint(1, 10)}}}" for _ in range(6)] for _ in range(14)]
    first, expected = single([make(ids) for _ in range(6)], 5, plan, autoreset)
    with make_vec(ids, 6, backend=backend, autoreset=autoreset, workers=2) as envs:
        assert list(map(list, envs.reset(seed=5))) == first
        over = []
        for actions, row in zip(plan, expected, strict=True):
            if autoreset == "disabled" and over:
                with pytest.raises(EpisodeStateError, match=rf"reset\(indices=\[{over[0]}\]\)"):
                    envs.step(actions)
                envs.reset(seed=[77] * len(over), indices=over)
            steps = envs.step(actions)
            assert plain(steps) == row
            assert steps.rewards.dtype == np.float64 and steps.terminated.dtype == bool
            over = np.flatnonzero(steps.terminated | steps.truncated).tolist()


def test_some_of_the_environments_can_be_stepped(backend):
    with make_vec(WAITS, 5, backend=backend, workers=2) as envs:
        twins = [make(WAITS) for _ in range(5)]
        envs.reset(seed=1)
        for i, twin in enumerate(twins):
            twin.reset(seed=1 + i)
        steps = envs.step(["a", "b"], [3, 0])
        assert plain(steps)[0] == [twins[3].step("a")[0], twins[0].step("b")[0]]
        assert envs.step(["c"] * 5).infos == tuple(
            {"turn": turn} for turn in (2, 1, 1, 2, 1)
        ) and all(twin.step("c") for twin in twins)
        obs, infos = envs.reset(seed=9, options={"x": 1}, indices=[2])
        assert obs == [make(WAITS).reset(seed=11)[0]] and infos == [{"options": {"x": 1}}]


def test_one_that_fails_ends_its_episode_and_no_other(backend):
    with make_vec([WAITS, FAST], 6, backend=backend, workers=2) as envs:
        with make_vec([WAITS, FAST], 6) as twins:
            assert envs.reset(seed=1) == twins.reset(seed=1)
            steps = envs.step(["fail", "fail", *["a"] * 4])
            expected = twins.step(["a"] * 6)
            assert plain(steps)[0][2:] == plain(expected)[0][2:]
        assert steps.truncated.tolist() == [True, True, *[False] * 4]
        assert steps.obs[:2] == ("", "") or steps.obs[:2] == ["", ""]
        assert steps.infos[0]["stop_reason"] == "env_error" and not steps.infos[0]["success"]
        assert steps.infos[0]["exception"].startswith("ValueError: on purpose (vec_envs.py:")
        steps = envs.step(["b"] * 6)
        assert not steps.truncated.any() and steps.obs[0].startswith("draw ")
        assert steps.infos[2] == {"turn": 2}


def test_one_that_exits_ends_its_episode_and_no_other(backend):
    """A thread or a worker that an exit ended would leave the vector waiting for ever."""
    with make_vec([WAITS, FAST], 4, backend=backend, workers=2) as envs:
        envs.reset(seed=1)
        for actions in (["quit", "a", "a", "quit"], ["b"] * 4, ["a", "quit", "a", "a"]):
            steps = envs.step(actions)
            ends = [action == "quit" for action in actions]
            assert steps.truncated.tolist() == ends
            texts = [info.get("exception", "") for info in steps.infos]
            assert [text.startswith("SystemExit: 4 (vec_envs.py:") for text in texts] == ends


def test_each_is_closed_also_after_one_that_exits(backend):
    broken = EnvSpec("vec:Open-v0", "vec_envs:Waits", {"closes": False})
    import vec_envs

    vec_envs.CLOSED.clear()
    envs = make_vec([broken, WAITS], 4, backend=backend, workers=1)
    envs.reset(seed=1)
    ends = SystemExit if backend in ("sync", "thread") else RemoteError
    with pytest.raises(ends, match="5"):
        envs.close()
    assert envs.closed
    if ends is SystemExit:
        assert vec_envs.CLOSED == [False, True, False, True]


def test_a_reset_that_fails_is_repeated_by_the_next_step(backend):
    spec = EnvSpec("vec:Broken-v0", "vec_envs:Waits", {"broken_resets": True})
    for autoreset in ("next_step", "same_step"):
        with make_vec(spec, 2, backend=backend, autoreset=autoreset, workers=1) as envs:
            envs.reset(seed=1)
            for _ in range(3):
                steps = envs.step(["a", "a"])
            assert steps.terminated.all()
            if autoreset == "same_step":
                assert "OSError: no second episode (vec_envs.py:" in steps.infos[0]["exception"]
                assert steps.infos[0]["final_info"] == {"turn": 3}
            steps = envs.step(["a", "a"])
            assert steps.truncated.all() and steps.infos[1]["stop_reason"] == "env_error"


def test_a_slow_environment_does_not_hold_up_the_others(concurrent, tmp_path):
    go_on = tmp_path / "go_on"
    with make_vec(WAITS, 16, backend=concurrent) as envs:
        envs.reset(seed=0)
        envs.send([f"until {go_on}", *["a"] * 15])
        ready = envs.recv(min_ready=15)
        assert sorted(ready.indices) == list(range(1, 16))
        assert envs.recv(timeout=0.01).indices == []
        envs.send(["b"] * 3, [4, 5, 6])
        with pytest.raises(EpisodeStateError, match=r"environments \[0\] were not received"):
            envs.send(["b", "b"], [0, 1])
        with pytest.raises(EpisodeStateError, match="were not received"):
            envs.reset()
        assert plain(envs.step(["b"], [7]).infos) == [["turn"]]
        go_on.touch()
        assert set(envs.recv(min_ready=4).indices) == {0, 4, 5, 6}


def test_what_was_sent_is_received_once(backend):
    with make_vec(FAST, 4, backend=backend, workers=1) as envs:
        envs.reset(seed=0)
        envs.send(["a", "b"], [2, 1])
        if backend == "sync":
            with pytest.raises(EpisodeStateError, match=r"\[2\] were not received"):
                envs.send(["a"], [2])
        ready = envs.recv(min_ready=2)
        assert dict(zip(ready.indices, ready.steps.obs, strict=True)).keys() == {1, 2}
        assert ready.steps.rewards.shape == (2,)
        empty = envs.recv(min_ready=3, timeout=0)
        assert empty.indices == [] and empty.steps.rewards.shape == (0,)


def test_resets_that_take_a_while_are_made_at_the_same_time(concurrent, tmp_path):
    together = {"meeting": str(tmp_path), "at_once": 16}
    with make_vec(WAITS, 16, backend=concurrent, kwargs=together, deadline_s=60) as envs:
        envs.reset(seed=0)  # one after another they would wait for each other until the deadline
        assert len(list(tmp_path.iterdir())) == 16


def test_a_hang_ends_at_its_deadline(concurrent):
    with make_vec(WAITS, 4, backend=concurrent, deadline_s=0.4, workers=4) as envs:
        envs.reset(seed=0)
        began = time.monotonic()
        steps = envs.step(["sleep 30", "a", "a", "a"])
        assert 0.4 <= time.monotonic() - began < 25  # not 30 s
        assert steps.truncated.tolist() == [True, False, False, False]
        assert steps.infos[0]["stop_reason"] == "deadline"
        assert "did not answer within 0.4 s" in steps.infos[0]["exception"]
        steps = envs.step(["b"] * 4)  # the first begins an episode, in a new thread or worker
        assert steps.obs[0].startswith("draw ") and steps.infos[1] == {"turn": 2}


def test_a_worker_that_ends_costs_one_episode(separate):
    with make_vec(FAST, 6, backend=separate, workers=2) as envs, make_vec(FAST, 6) as twins:
        assert envs.reset(seed=0) == twins.reset(seed=0)
        steps = envs.step(["exit", *["a"] * 5])
        assert plain(steps)[0][1:] == plain(twins.step(["a"] * 6))[0][1:]
        assert steps.infos[0]["exception"].startswith("WorkerDiedError: the worker process of the")
        assert plain(envs.step(["b"] * 6))[0][1:] == plain(twins.step(["b"] * 6))[0][1:]


def test_closing_leaves_nothing(concurrent):
    before = {t for t in threading.enumerate() if t.name.startswith("gem-")}
    envs = make_vec(WAITS, 3, backend=concurrent, deadline_s=30, workers=3)
    envs.reset(seed=0)
    envs.send(["sleep 20"], [1])
    began = time.monotonic()
    envs.close()
    envs.close()
    assert time.monotonic() - began < 10
    for call in (envs.reset, envs.recv, lambda: envs.step(["a"] * 3)):
        with pytest.raises(EpisodeStateError, match="is closed: make a new one"):
            call()
    left = {t for t in threading.enumerate() if t.name.startswith("gem-") and t.is_alive()}
    assert len(left - before) <= 3


def test_ids_are_mixed_by_their_weights():
    guess, minds = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"
    with make_vec([guess, minds], 8, weights=[3, 1]) as envs:
        assert envs.ids.count(guess) == 6 and len(envs) == envs.num_envs == 8
        assert envs.ids[:4].count(minds) == 1
        obs, _ = envs.reset(seed=2)
        assert obs == [make(id).reset(seed=2 + i)[0] for i, id in enumerate(envs.ids)]
    specs = [EnvSpec(name, "m:C") for name in "ab"]
    assert [spec.id for spec in mix(specs, 5)] == ["a", "b", "a", "b", "a"]
    assert {spec.id for spec in mix(specs, 5, [0, 1])} == {"b"}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"backend": "dask"}, ValueError, "backend is one of sync, thread, process, ray"),
        ({"address": "auto"}, ValueError, "address is that of a Ray cluster"),
        ({"autoreset": "never"}, ValueError, "autoreset is one of next_step"),
        ({"num_envs": 0}, ValueError, "at least one id and one environment"),
        ({"weights": [1.0, 2.0]}, ValueError, "as many weights"),
        ({"weights": [-1.0]}, ValueError, "none negative"),
        ({"ids": "game:GuesTheNumber-v0-easy"}, UnknownNameError, "Did you mean"),
        ({"backend": "thread", "workers": 0}, ValueError, "workers must be at least 1"),
    ],
)
def test_impossible_vectors_are_refused(change, error, text):
    options = {"ids": FAST, "num_envs": 2, **change}
    with pytest.raises(error, match=text):
        make_vec(options.pop("ids"), options.pop("num_envs"), **options)


def test_wrong_calls_say_what_to_do(backend):
    with make_vec(FAST, 2, backend=backend, workers=1) as envs:
        with pytest.raises(EpisodeStateError, match="Environment 0 was never reset"):
            envs.step(["a", "a"])
        envs.reset(seed=[4, None])
        with pytest.raises(ValueError, match="2 environments need as many actions"):
            envs.step(["a"])
        with pytest.raises(ValueError, match="2 environments need as many actions"):
            envs.step("ab")
        with pytest.raises(ValueError, match="different numbers from 0 to 1"):
            envs.step(["a", "a"], [1, 1])
        with pytest.raises(ValueError, match="3 seeds were given for 2"):
            envs.reset(seed=[1, 2, 3])
        if backend == "sync":
            steps = envs.step([1, "a"])
            assert steps.infos[0]["exception"].startswith(ActionTypeError.__name__)


def test_closing_one_vector_leaves_the_cluster_to_another(pytestconfig):
    if pytestconfig.getoption("trainer") not in HAVE_RAY:
        with pytest.raises(MissingDependencyError, match=r"gem-core\[ray\]"):
            make_vec(FAST, 2, backend="ray")
        return
    program = Path(__file__).parent / "two_vectors.py"
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.split() == ["True", "True", "True", "False"]
