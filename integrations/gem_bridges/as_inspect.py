"""Environments of gem-core for Inspect (``inspect_ai``): a task with one sample per seed.

``inspect eval my_tasks.py`` plays what a file of tasks names, ``my_tasks.py``::

    from gem_bridges.as_inspect import gem_task
    from inspect_ai import Task, task


    @task
    def sudoku(seeds: int = 100) -> Task:
        return gem_task("game:Sudoku-v0-easy", seeds=seeds)
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from anyio import CancelScope, CapacityLimiter, to_thread
from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import StoreModel

from gem_core.env.interface import Env
from gem_core.env.registration import make
from gem_core.episodes.context import with_suffix
from gem_core.episodes.env_results import check_reset, check_step
from gem_core.errors import EnvResultError, EpisodeStateError, KindError, require_kind

CONTEXT_IS_FULL = "model_length"
"""Inspect's word for an answer that the model had no room for: its text may be an error message."""
Call = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function without holding up other samples."""


class GemEpisode(StoreModel):
    """What was played in a sample; for one of a log: ``sample.store_as(GemEpisode)``.

    Attributes:
        started: whether `play_gem` has begun.
        rewards: the reward of each turn.
        errors: ``info["error"]`` of each turn, ``None`` where an action was accepted.
        end: ``terminated`` or ``truncated`` by the environment, ``model_length`` where the model's
            context was full. ``None``: the episode did not end; the sample's limit or error says
            what stopped it.
        success: the environment's ``info["success"]`` at the end.
        last_observation: what the environment showed at the end, which the model does not see.
    """

    started: bool = False
    rewards: list[float] = []  # noqa: RUF012
    errors: list[str | None] = []  # noqa: RUF012
    end: str | None = None
    success: bool = False
    last_observation: str | None = None


def gem_task(
    environment: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    seeds: int = 100,
    first_seed: int = 0,
    **options: Any,
) -> Task:
    """Return a task with one sample per seed, which plays an episode of an environment.

    The input of a sample is the first observation of ``reset(seed=...)``, its id
    ``<environment>#<seed>``. In each epoch an environment of its own plays the same seed again.

    Args:
        environment: an id of `gem_core.make`.
        kwargs: parameters of the environment; they are in the log.
        seeds: number of samples.
        first_seed: seed of the first one; the others follow it.
        **options: further arguments of ``inspect_ai.Task``, such as ``epochs`` and
            ``message_limit``.

    Raises:
        KindError: a number of seeds that is none, or parameters that are not JSON data.
        GemError: as `gem_core.make`.
        EnvResultError: ``reset`` returned something else than an observation and an info.
    """
    require_kind("gem_task(seeds=)", seeds, int)
    require_kind("gem_task(first_seed=)", first_seed, int)
    if seeds < 1:
        raise KindError(f"gem_task(seeds=) is the number of samples, at least 1, not {seeds}.")
    kwargs = _check_data(environment, kwargs or {})
    with make(environment, **kwargs) as env:
        samples = [
            _make_sample(env, environment, kwargs, seed)
            for seed in range(first_seed, first_seed + seeds)
        ]
        about = {"environment": environment, "kwargs": kwargs}
        if env.spec is not None:
            about["fingerprint"] = env.spec.fingerprint()
        ours = {"version": env.version, "metadata": about, "solver": play_gem(environment, kwargs)}
    return Task(dataset=samples, **{**ours, "scorer": [episode_return(), success()], **options})


def _check_data(environment: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(dict(kwargs))
    except (TypeError, ValueError) as error:
        raise KindError(
            f"{environment}: the parameters of a task are written to its log, so they are JSON "
            f"data: {error}."
        ) from None
    return dict(kwargs)


def _make_sample(env: Env, environment: str, kwargs: dict[str, Any], seed: int) -> Sample:
    # Of the info only what is shown: the rest may tell the answer.
    return Sample(
        id=f"{environment}#{seed}",
        input=with_suffix(*check_reset(env.reset(seed=seed))),
        metadata={"environment": environment, "kwargs": kwargs, "seed": seed},
    )


@solver
def play_gem(environment: str, kwargs: dict[str, Any]) -> Solver:
    """Return the solver that plays a sample's episode; the environment is the user.

    Its calls are made in a thread. A limit of Inspect ends the episode where it is, an exception of
    the environment is an error of the sample; both close the environment, after the running call.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store_as(GemEpisode).started = True
        # A limiter of its own: anyio's common one would let 40 slow environments step at a time.
        call = partial(to_thread.run_sync, limiter=CapacityLimiter(1))
        env = await call(partial(make, environment, **kwargs))
        try:
            return await _play(env, call, state, generate)
        finally:
            with CancelScope(shield=True):
                await call(env.close)

    return solve


async def _play(env: Env, call: Call, state: TaskState, generate: Generate) -> TaskState:
    seed = state.metadata["seed"]
    first = with_suffix(*check_reset(await call(partial(env.reset, seed=seed))))
    if first not in state.input_text:
        raise EnvResultError(
            f"{env!r}: seed {seed} does not decide the episode, as its first observation is not "
            "that of the sample: draw all that is random from the seed."
        )
    episode = state.store_as(GemEpisode)
    while True:
        state = await generate(state)
        if state.output.stop_reason == CONTEXT_IS_FULL:
            episode.end = CONTEXT_IS_FULL
            return state
        shown = _record(episode, await call(partial(env.step, state.output.completion)))
        if episode.end:
            return state
        state.messages.append(ChatMessageUser(content=shown))


def _record(episode: GemEpisode, result: Any) -> str:
    """Add a turn to an episode; return what is shown after it."""
    observation, reward, terminated, truncated, info = check_step(result)
    error = info.get("error")
    episode.rewards = [*episode.rewards, reward]
    episode.errors = [*episode.errors, None if error is None else str(error)]
    shown = with_suffix(observation, info)
    if terminated or truncated:
        episode.success = bool(info.get("success", False))
        episode.last_observation = shown
        episode.end = "terminated" if terminated else "truncated"
    return shown


@scorer(metrics=[mean(), stderr()])
def episode_return() -> Scorer:
    """Return the scorer of the undiscounted sum of the rewards, also of an unfinished episode.

    Raises:
        EpisodeStateError: when it scores, the sample was not played by `play_gem`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        episode = _read_episode(state)
        return _make_score(sum(episode.rewards, 0.0), episode)

    return score


@scorer(metrics=[mean(), stderr()])
def success() -> Scorer:
    """Return the scorer of the environment's success: 1 or 0, and 0 for an unfinished episode.

    Raises:
        EpisodeStateError: when it scores, the sample was not played by `play_gem`.
    """

    async def score(state: TaskState, target: Target) -> Score:
        episode = _read_episode(state)
        return _make_score(float(episode.success), episode)

    return score


def _read_episode(state: TaskState) -> GemEpisode:
    episode = state.store_as(GemEpisode)
    if not episode.started:
        raise EpisodeStateError(
            f"{state.sample_id}: there is no episode to score: play the sample with "
            "gem_bridges.as_inspect.play_gem."
        )
    return episode


def _make_score(value: float, episode: GemEpisode) -> Score:
    end = episode.end or "not ended"
    return Score(
        value=value,
        explanation=f"{end} after {len(episode.rewards)} turns",
        metadata={"rewards": episode.rewards, "end": episode.end},
    )


__all__ = ["GemEpisode", "episode_return", "gem_task", "play_gem", "success"]
