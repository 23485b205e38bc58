"""Environments of gem-core for ``verifiers``: a taskset, and the `Env` that plays it.

The ids of verifiers are top-level modules, so a program of its own needs one, ``my_tasks.py``::

    from gem_bridges.as_verifiers import GemCoreEnv, GemCoreTaskset

    __all__ = ["GemCoreEnv", "GemCoreTaskset"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from gem_core.env.registration import make_from_data


class GemCoreConfig(vf.TasksetConfig):
    """The environment and its seeds."""

    environment: str
    """An id of `gem_core.make`."""
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    """Parameters of the environment."""
    first_seed: int = 0
    seeds: int = 1000


class GemCoreData(vf.TaskData):
    """The first observation is the prompt; this is what it was made from."""

    environment: str
    kwargs: dict[str, Any]
    seed: int


class GemCoreTask(vf.Task[GemCoreData]):
    """One episode of an environment."""


class GemCoreTaskset(vf.Taskset[GemCoreTask, GemCoreConfig]):
    """One task per seed."""

    def load(self) -> Iterator[GemCoreTask]:
        """Yield the tasks; each prompt is that of an episode's reset."""
        config = self.config
        with make_from_data(config.environment, config.kwargs) as env:
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                data = GemCoreData(
                    name=f"{config.environment}#{seed}",
                    prompt=_format_observation(*env.reset(seed=seed)),
                    environment=config.environment,
                    kwargs=config.kwargs,
                    seed=seed,
                )
                yield GemCoreTask(data, config.task)


class GemCoreEnvConfig(vf.EnvConfig):
    """One agent plays."""

    player: vf.AgentConfig = vf.AgentConfig()


class GemCoreEnv(vf.Env[GemCoreEnvConfig]):
    """Plays an episode: the environment is the user of the exchange.

    The rewards of the turns are summed as ``episode_return``; ``success`` is a metric. The calls
    of the environment are made in threads, so that slow ones do not hold up other episodes.
    """

    async def run(self, task: Any, agents: Any) -> None:
        """Play the episode of a task."""
        data = task.data
        total = 0.0
        success = False
        env = make_from_data(data.environment, data.kwargs)
        try:
            await asyncio.to_thread(env.reset, seed=data.seed)
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn()
                while not segment.terminated:
                    step = await asyncio.to_thread(env.step, segment.last_reply)
                    observation, reward, terminated, truncated, info = step
                    total += float(reward)
                    if terminated or truncated:
                        success = bool(info.get("success", False))
                        break
                    segment = await interaction.turn(_format_observation(observation, info))
        finally:
            env.close()
        interaction.trace.record_reward("episode_return", total)
        interaction.trace.record_metric("success", float(success))


def _format_observation(observation: str, info: dict[str, Any]) -> str:
    parts = [str(info.get("prefix", "")), observation, str(info.get("suffix", ""))]
    return "\n".join(part for part in parts if part)


__all__ = ["GemCoreEnv", "GemCoreTaskset"]
