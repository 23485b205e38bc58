"""Episodes whose environments live in threads or in worker processes are those of this process."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter

import faulty_env
import pytest
from playing import Actions, eventually

from gem_core.episodes.data import StopReason
from gem_core.episodes.rollout import play_batch, play_many, require_healthy
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.environments.description import in_run
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

FAULTS = ("exception", "memory", "exit", "kill", "hang")


def recipe_of(backend, *envs, **tables):
    number = {"number": 2} if backend in ("process", "ray") else {}
    workers = {"backend": backend, **number, **tables.pop("workers", {})}
    envs = envs or ({"id": faulty_env.ID},)
    return recipe_from_dict({"name": "w", "env": list(envs), "workers": workers, **tables})


@pytest.fixture(autouse=True, scope="module")
def no_workers_left():
    yield
    for pool in run_pools._pools.values():
        pool.close()


def played(play_all, recipe, count, policy):
    machines = MachineFactory(recipe)
    episodes = play_all([machines.train(index) for index in range(count)], policy)
    for episode in episodes:
        assert episode.seconds["env"] >= 0
        episode.seconds.clear()
    return episodes


def test_the_same_episodes_in_every_backend(play_all, backend, server_table):
    envs = (
        {"id": faulty_env.ID, "kwargs": {"turns": 4}},
        {"id": faulty_env.ID, "kwargs": {"slow": True}, "max_turns": 2},
        {"id": "game:Mastermind-v0-easy", "max_turns": 5},
    )
    actions = {3: ["a", "exception"], 5: ["memory"]}
    runs = [
        played(play_all, recipe_of(where, *envs), 24, Actions(actions))
        for where in ("inline", "thread", backend)
    ]
    if server_table is not None:
        served = recipe_of("server", *envs, workers=server_table)
        runs.append(played(play_all, served, 24, Actions(actions)))
    assert all(run == runs[0] for run in runs)
    reasons = {episode.stop_reason for episode in runs[0]}
    expected = {StopReason.TERMINATED, StopReason.TRUNCATED_TURNS, StopReason.ENV_ERROR}
    assert reasons >= expected
    assert len({episode.env_id for episode in runs[0]}) == 2


@pytest.mark.parametrize("slow", [False, True])
def test_every_fault_is_an_episode_with_its_reason(play_all, slow, backend):
    """Forty episodes, of which twenty break in five ways; each of the others is as without them.

    Only calls that run in one worker at the same time, those that may block, are lost together.
    """
    env = {"id": faulty_env.ID if slow else faulty_env.FAST}
    actions = {2 * k: ["a", FAULTS[k % 5]] for k in range(20)}
    limits = {"turn_deadline_s": 2.0 if slow else 1.0}
    recipe = recipe_of(backend, env, limits=limits)
    episodes = played(play_all, recipe, 40, Actions(actions))
    fine = played(play_all, recipe_of("inline", env, limits=limits), 40, Actions())
    lost = 0
    for episode, other in zip(episodes, fine, strict=True):
        kind = actions.get(episode.index, ["", ""])[1]
        where = f"{env['id']}, seed {episode.seed}: "
        if kind == "hang":
            assert episode.stop_reason in (StopReason.DEADLINE, StopReason.ENV_ERROR)
        elif kind:
            assert episode.stop_reason is StopReason.ENV_ERROR
        elif episode.stop_reason is StopReason.ENV_ERROR:  # its call was in a worker that ended
            lost += 1
            assert slow and "the worker process of the environment ended" in episode.error
        else:
            if slow and episode.error:  # its close() was in a worker that ended
                assert episode.error.startswith("close: WorkerDiedError: ")
                episode.error = None
            assert episode == other
        if episode.stop_reason.failed:
            assert episode.error.startswith(where), episode.error
    assert slow or lost == 0
    with pytest.raises(GemError, match=r"of the batch's 40 episodes failed"):
        require_healthy(episodes, 0.1)


@pytest.mark.slow
def test_a_thousand_faults_are_a_thousand_episodes(backend):
    """Each of them breaks in one of five ways in its second turn; sixty-four at a time."""
    actions = {k: ["a", FAULTS[k % 5]] for k in range(1000)}
    workers = {"number": 4, "max_restarts": 2000}
    limits = {"turn_deadline_s": 0.5}
    recipe = recipe_of(backend, {"id": faulty_env.FAST}, limits=limits, workers=workers)
    factory = MachineFactory(recipe)
    machines = [factory.train(index) for index in range(1000)]
    episodes = asyncio.run(play_many(machines, Actions(actions), concurrency=64))
    assert [episode.index for episode in episodes] == list(range(1000))
    counts = Counter((FAULTS[e.index % 5], e.stop_reason) for e in episodes)
    assert counts == {
        (kind, StopReason.DEADLINE if kind == "hang" else StopReason.ENV_ERROR): 200
        for kind in FAULTS
    }
    healthy = [factory.train(index) for index in range(8)]
    after = asyncio.run(play_many(healthy, Actions(), concurrency=8))
    assert [episode.stop_reason for episode in after] == [StopReason.TERMINATED] * 8
    pids = run_pools.run_pool(recipe.workers).pids
    run_pools.run_pool(recipe.workers).close()
    assert 1 <= len(pids) <= 4
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.slow
def test_a_thousand_faults_in_threads_are_a_thousand_episodes():
    """Exceptions, memory errors and calls that return too late; a thread cannot be killed."""
    kinds = ("exception", "memory", "nap")
    actions = {k: ["a", kinds[k % 3]] for k in range(1000)}
    recipe = recipe_of("thread", limits={"turn_deadline_s": 0.5})
    factory = MachineFactory(recipe)
    machines = [factory.train(index) for index in range(1000)]
    episodes = asyncio.run(play_many(machines, Actions(actions), concurrency=64))
    assert [episode.index for episode in episodes] == list(range(1000))
    counts = Counter((kinds[e.index % 3], e.stop_reason) for e in episodes)
    assert counts == {
        ("exception", StopReason.ENV_ERROR): 334,
        ("memory", StopReason.ENV_ERROR): 333,
        ("nap", StopReason.DEADLINE): 333,
    }


class OneEndsFirst(Actions):
    """Nobody plays a third turn before the episode with this index is over."""

    def __init__(self, actions, index):
        super().__init__(actions)
        self.index = index
        self.over = asyncio.Event()

    async def complete(self, request):
        machine = request.machine
        if machine.index == self.index:
            self.watcher = asyncio.ensure_future(self._watch(machine))
        if machine.turn == 2:
            await self.over.wait()
        return self.one(request)

    async def _watch(self, machine):
        while not machine.done:
            await asyncio.sleep(0.005)
        self.over.set()


def test_without_replay_a_worker_costs_all_its_episodes_and_not_the_batch(play_all, backend):
    recipe = recipe_of(backend, workers={"number": 1, "restart": "fail"})
    episodes = played(play_all, recipe, 6, OneEndsFirst({2: ["kill"]}, 2))
    assert {episode.stop_reason for episode in episodes} <= {
        StopReason.ENV_ERROR,
        StopReason.TERMINATED,
    }
    assert episodes[2].error.endswith("it was ended by SIGKILL")
    others = [episode.error for episode in episodes if episode.index != 2 and episode.error]
    assert all("WorkerDiedError: the " in error for error in others) and others


def test_too_many_replacements_stop_the_run(play_all, backend):
    recipe = recipe_of(backend, workers={"number": 1, "max_restarts": 0})
    with pytest.raises(GemError, match="1 environment workers had to be replaced: repair"):
        for _ in range(2):  # the episode that ends the worker may be the last one of the first time
            played(play_all, recipe, 6, Actions({2: ["exit"]}))


def test_the_deadline_of_an_episode_holds(play_all, backend):
    recipe = recipe_of(backend, limits={"episode_deadline_s": 0.6}, workers={"number": 1})
    began = time.monotonic()
    (episode,) = played(play_all, recipe, 1, Actions({0: ["a", "hang"]}))
    assert time.monotonic() - began < 30
    assert episode.stop_reason is StopReason.DEADLINE
    assert episode.error == f"{faulty_env.ID}, seed 0: the environment did not answer within 0.6 s"


def test_the_deadline_of_the_workers_holds_where_the_limits_have_none(play_all, backend):
    table = {"deadline_s": 0.3}
    for where in ("thread", backend):
        recipe = recipe_of(where, workers=table)
        factory = MachineFactory(recipe)
        machine = factory.train(0)
        if where == "thread":
            assert machine.limits.turn_deadline_s == 0.3
        else:
            (episode,) = play_all([machine], Actions({0: ["hang"]}))
            assert episode.stop_reason is StopReason.DEADLINE
            assert episode.error.endswith("the environment did not answer within 0.3 s")


def test_a_cancelled_rollout_closes_its_environments(backend):
    recipe = recipe_of(backend)
    factory = MachineFactory(recipe)
    machines = [factory.train(k) for k in range(4)]

    async def given_up():
        task = asyncio.ensure_future(play_many(machines, Actions({0: ["hang"]})))
        while not all(machine.done for machine in machines[1:]):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(given_up())
    assert all(machine.done for machine in machines)
    assert machines[0].episode.stop_reason is StopReason.ABORTED
    assert machines[1].episode.stop_reason is StopReason.TERMINATED
    pool = run_pools.run_pool(recipe.workers)
    eventually(lambda: all(machine.env._handle.closed for machine in machines))
    pool.close()


class Words:
    """A tokenizer with one token for each word."""

    stop_ids = frozenset({0})

    def encode(self, text):
        return [1] * len(text.split())

    def decode(self, token_ids):
        return "word " * len(token_ids)


@pytest.mark.parametrize(("most", "cut"), [(4, True), (33, False)])
def test_tools_work_in_a_worker_and_results_are_counted_with_the_models_tokens(most, cut, backend):
    table = {"id": "qa:Auction", "tools": ["search"], "tool_use": {"output_tokens": most}}
    results = []
    for where in ("inline", backend):
        factory = MachineFactory(recipe_of(where, table))
        factory.tokenizer = Words()
        env = factory.train(0).env
        obs, _ = env.reset(seed=0)
        assert "You may use tools" in obs
        result = env.step("<search>lot 1049</search>")
        assert result[4]["tool"]["truncated"] is cut
        for info in (result[4], result[4]["tool"]):
            info.pop("tool_seconds", None)
            info.pop("seconds", None)
            info.pop("cached", None)  # the search of another test may have been the same
        results.append((obs, result, env.functions))
        env.close()
    assert results[0] == results[1]


def test_python_sessions_live_in_the_worker(backend):
    table = {"id": "qa:Auction", "tools": ["python"]}
    env = MachineFactory(recipe_of(backend, table)).train(0).env
    env.reset(seed=0)
    obs, _, _, _, info = env.step("<python>x = 40\nprint(x + 2)</python>")
    assert "42" in obs and info["tool"]["ok"]
    env.close()


def rows_of_sums(number):
    rows = [f'{{"problem": "{k} + {number}?", "answer": "{k + number}"}}' for k in range(9)]
    return "\n".join(rows)


def test_a_run_plays_its_recorded_data_in_workers_and_they_end_with_it(tmp_path, backend):
    data = tmp_path / "rows.jsonl"
    data.write_text(rows_of_sums(1))
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": str(data)}}
    recipe = recipe_of(backend, table, eval={"episodes": 0})
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with in_run(run):
        env = MachineFactory(run.recipe).train(0).env
        env.reset(seed=0)
        assert env.spec.data_revision == run.info["environments"][0]["data_revision"]
        pool = run_pools.run_pool(recipe.workers)
        pids = pool.pids
        data.write_text(rows_of_sums(2))
        for pid in pids:
            os.kill(pid, 9)  # a new worker reads the file again
        (episode,) = play_batch([MachineFactory(run.recipe).train(0)], Actions())
        assert episode.stop_reason is StopReason.ENV_ERROR
        assert "DataError: qa:HotpotQA: " in episode.error
    assert pool.closed and pool.pids == []


def test_the_event_loop_is_free_while_environments_work(backend):
    """Four environments that use a CPU for 0.15 s per step. What blocks is counted in CPU time of
    the loop's thread, which a busy machine does not change."""

    def longest(where):
        factory = MachineFactory(recipe_of(where, {"id": faulty_env.HEAVY}))
        machines = [factory.train(k) for k in range(4)]
        pauses = []

        async def watch():
            last = time.thread_time()
            while True:
                await asyncio.sleep(0.002)
                now = time.thread_time()
                pauses.append(now - last)
                last = now

        async def play():
            watcher = asyncio.ensure_future(watch())
            episodes = await play_many(machines, Actions())
            watcher.cancel()
            return episodes

        assert all(episode.success for episode in asyncio.run(play()))
        return max(pauses, default=0.0)

    assert longest(backend) < 0.02
    assert not 0 < longest("inline") < 0.1  # 0: it does not tick at all
