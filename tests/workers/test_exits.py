"""What an environment raises ends its own episode only, whatever its class, wherever it lives."""

from __future__ import annotations

import asyncio

import faulty_env
import pytest
from playing import Actions

from gem_core.env.registration import make
from gem_core.episodes.context import Context, get_template
from gem_core.episodes.data import StopReason
from gem_core.episodes.machine import EpisodeMachine
from gem_core.errors import GemError
from gem_core.execution.workers import Builder, WorkerEnv
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

FAULTS = {
    "quit": "SystemExit: 3",
    "base": "Ends: on purpose",
    "generator": "GeneratorExit: on purpose",
    "unshown": "Unshown: (its message cannot be shown: SystemExit)",
    "surrogates": r"OSError: no file \udcff",
}
COUNT = 12


@pytest.fixture(autouse=True, scope="module")
def no_workers_left():
    yield
    for pool in run_pools._pools.values():
        pool.close()


@pytest.fixture
def tables(backend, server_table):
    """``[workers]`` of every way in which environments are called."""
    here = {"inline": {"backend": "inline"}, "thread": {"backend": "thread"}}
    away = {backend: {"backend": backend, "number": 2}}
    return {**here, **away, **({} if server_table is None else {"server": server_table})}


def played(play_all, workers, env, actions, count=COUNT):
    recipe = recipe_from_dict({"name": "w", "env": [env], "workers": workers})
    factory = MachineFactory(recipe)
    return play_all([factory.train(index) for index in range(count)], Actions(actions))


@pytest.mark.parametrize("id", [faulty_env.ID, faulty_env.FAST])
def test_whatever_a_step_raises_is_an_error_of_its_episode(play_all, tables, id):
    actions = {2 * k: ["a", kind] for k, kind in enumerate(FAULTS)}
    texts = {}
    for name, workers in tables.items():
        episodes = played(play_all, workers, {"id": id}, actions)
        for episode in episodes:
            where = f"{name}, {id}: {episode.error}"
            if episode.index not in actions:
                assert episode.stop_reason is StopReason.TERMINATED, where
                continue
            assert episode.stop_reason is StopReason.ENV_ERROR, where
            assert FAULTS[actions[episode.index][1]] in episode.error, where
            assert "(faulty_env.py:" in episode.error, where  # the place where it was raised
        texts[name] = [episode.error for episode in episodes]
    assert all(text == texts["inline"] for text in texts.values())


@pytest.mark.parametrize("kind", FAULTS)
def test_whatever_a_reset_or_a_close_raises_is_an_error_of_its_episode(play_all, tables, kind):
    tables.pop("server", None)  # its clients cannot set these parameters; tests/server has it
    for name, workers in tables.items():
        for slow in (False, True):
            env = {"id": faulty_env.ID, "kwargs": {"at_reset": kind, "slow": slow}}
            (episode,) = played(play_all, workers, env, {}, count=1)
            assert episode.stop_reason is StopReason.ENV_ERROR, name
            assert FAULTS[kind] in episode.error, name
        env = {"id": faulty_env.ID, "kwargs": {"at_close": kind}}
        (episode,) = played(play_all, workers, env, {}, count=1)
        assert episode.stop_reason is StopReason.TERMINATED, name
        assert episode.error.startswith(f"close: {FAULTS[kind]}"), name


@pytest.mark.parametrize("kind", ["quit", "base"])
def test_an_environment_that_exits_while_it_is_made_is_an_error(kind):
    with pytest.raises(GemError, match=rf"faulty:Env-v0 cannot be made: {FAULTS[kind]} \(faulty"):
        make(faulty_env.ID, build=kind)


@pytest.mark.parametrize("kind", ["quit", "base"])
def test_an_environment_that_exits_while_a_worker_makes_it_is_an_error_of_its_episode(
    play_all, backend, kind
):
    workers = {"backend": backend, "number": 2}
    env = {"id": faulty_env.ID, "kwargs": {"build": kind}}
    (episode,) = played(play_all, workers, env, {}, count=1)
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert FAULTS[kind] in episode.error


def test_a_result_that_ends_its_reader_is_an_error_and_the_pool_serves_on(shared_pool):
    env = WorkerEnv(shared_pool, Builder("faulty_env:ends_caller", ()).pack())
    env.reset(seed=1)
    with pytest.raises(TypeError, match="cannot be read here: SystemExit: 6"):
        env.step("a")
    assert WorkerEnv(shared_pool, Builder("faulty_env:make", ()).pack()).reset(seed=1)
    env.close()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, asyncio.CancelledError])
def test_what_asks_the_program_to_stop_is_passed_on(play_all, stop):
    class Stopped(faulty_env.Fast):
        def _step(self, action):
            raise stop

    env = Stopped()
    machine = EpisodeMachine(env, Context(get_template("no")))
    with pytest.raises(stop):
        play_all([machine], Actions())
    assert machine.episode.stop_reason is StopReason.ABORTED


def test_what_a_signal_handler_raises_is_passed_on(play_all):
    """As Ray's handler of SIGTERM does, in the middle of a call of an environment."""
    import signal
    import sys

    class Signalled(faulty_env.Fast):
        def _step(self, action):
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: sys.exit(9))
    try:
        with pytest.raises(SystemExit):
            play_all([EpisodeMachine(Signalled(), Context(get_template("no")))], Actions())
    finally:
        signal.signal(signal.SIGUSR1, before)
