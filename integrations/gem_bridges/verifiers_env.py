"""Tasks of ``verifiers``: ``verifiers:<taskset>``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_bridges.foreign import ForeignEnv
from gem_core.env.registration.references import check_module
from gem_core.errors import RecipeError

if TYPE_CHECKING:
    from gem_core.env.interface import Info, StepResult

MAX_TASKS = 10_000
SUCCESS_REWARD = 1.0


class VerifiersEnv(ForeignEnv):
    """A taskset of ``verifiers`` 0.4 with the exchange that its ``Env`` defines.

    The policy takes the place of every agent: what an agent would be sent is the observation, what
    the policy writes is the agent's reply. The reward is the trace's, at the end: the sum of the
    task's weighted rewards. Tasks that need a container, tools or preparation in one are refused,
    because no harness runs here.

    Args:
        name: the taskset's id, a module that exports it.
        environment: id of an ``Env``, where the taskset does not bring one.
        taskset: fields of the taskset's configuration.
        tasks: at most so many of its tasks, from the first on.
        success_reward: the reward from which on an episode is a success.

    Raises:
        MissingDependencyError: ``verifiers`` is not installed.
        RecipeError: it has no task, or its tasks cannot be played without a container.
    """

    distribution = "verifiers"

    def __init__(
        self,
        name: str,
        *,
        environment: str = "",
        taskset: dict[str, Any] | None = None,
        tasks: int = MAX_TASKS,
        success_reward: float = SUCCESS_REWARD,
    ) -> None:
        for module in filter(None, (name, environment)):
            check_module(module, f"verifiers:{name}")
        self.environment = environment
        self.taskset = dict(taskset or {})
        self.tasks = tasks
        self.success_reward = success_reward
        self._exchange: _Exchange | None = None
        super().__init__(name)
        self._arguments.update(
            environment=environment,
            taskset=self.taskset,
            tasks=tasks,
            success_reward=success_reward,
        )

    def random_action(self, rng: Random) -> str:
        """Return a number: tasksets have no random actions."""
        return str(rng.randint(0, 9))

    def _make(self) -> Any:
        from verifiers.v1.utils.loaders import load_environment, resolve_env_config

        config = {"taskset": {"id": self.name, **self.taskset}, "id": self.environment}
        env = load_environment(resolve_env_config(config))
        self._items = list(islice(env.taskset, self.tasks))
        if not self._items:
            raise RecipeError(f"{self.name} has no task.")
        _check_playable(self.name, self._items[0])
        return env

    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Info]:
        self._foreign_close()
        task = self._items[Random(seed).randrange(len(self._items))]
        self._exchange = _Exchange(self._made, task)
        shown = self._exchange.advance(None)
        if shown is None:
            raise RecipeError(f"{self.name}: the exchange ended before the first turn.")
        return shown, {}

    def _foreign_step(self, action: str) -> StepResult:
        assert self._exchange is not None
        shown = self._exchange.advance(action)
        if shown is not None:
            return shown, 0.0, False, False, {}
        rewards = self._exchange.rewards()
        reward = sum(rewards.values())
        info = {"rewards": rewards, "success": reward >= self.success_reward}
        return "", reward, True, False, info

    def _foreign_close(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


class _Exchange:
    """One run of an ``Env`` of verifiers, which pauses wherever an agent would write."""

    def __init__(self, env: Any, task: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._paused = asyncio.Event()
        self._reply: asyncio.Future[str] | None = None
        self._shown = ""
        self.traces: list[Any] = []
        self._run = self._loop.create_task(env.run(task, _Agents(self)))

    def advance(self, reply: str | None) -> str | None:
        """Continue with the policy's reply; return what it sees next, ``None`` at the end.

        Raises:
            Exception: that of the environment or of a reward function.
        """
        self._paused.clear()
        if reply is not None:
            assert self._reply is not None
            self._reply.set_result(reply)
        self._loop.run_until_complete(self._until_paused())
        if self._run.done():
            self._run.result()
            return None
        return self._shown

    def rewards(self) -> dict[str, float]:
        """Return the weighted rewards of all traces; the names of several are summed."""
        rewards: dict[str, float] = {}
        for trace in self.traces:
            for name, reward in trace.rewards.items():
                if reward is not None:
                    rewards[name] = rewards.get(name, 0.0) + float(reward.value)
        return rewards

    def close(self) -> None:
        """End the run, wherever it is."""
        if not self._run.done():
            self._run.cancel()
            self._loop.run_until_complete(asyncio.wait({self._run}))
        self._loop.close()

    async def ask(self, shown: str) -> str:
        """Show something to the policy and wait for its reply."""
        self._shown = shown
        self._reply = self._loop.create_future()
        self._paused.set()
        return await self._reply

    async def _until_paused(self) -> None:
        paused = asyncio.ensure_future(self._paused.wait())
        await asyncio.wait({paused, self._run}, return_when=asyncio.FIRST_COMPLETED)
        paused.cancel()


class _Agents:
    """All agents of an ``Env``; each attribute is one."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    def __getattr__(self, name: str) -> _Agent:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Agent(name, self._exchange)


class _Agent:
    """What verifiers calls an agent, written by the policy."""

    def __init__(self, name: str, exchange: _Exchange) -> None:
        self.name = name
        self._exchange = exchange

    async def run(self, task: Any) -> Any:
        """Let it answer a task once."""
        async with self.interaction(task) as interaction:
            await interaction.turn()
        return interaction.trace

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[_Interaction]:
        """Hold an exchange open; its rewards are computed when it ends."""
        interaction = _Interaction(self.name, task, self._exchange)
        self._exchange.traces.append(interaction.trace)
        yield interaction
        interaction.trace.is_completed = True
        await task.score(interaction.trace)


class _Segment(NamedTuple):
    last_reply: str
    terminated: bool = False


class _Interaction:
    """One agent's turns, and the trace that reward functions read."""

    def __init__(self, name: str, task: Any, exchange: _Exchange) -> None:
        from verifiers.v1.configs.agent import AgentConfig
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        self._exchange = exchange
        self._task = task
        recorded = TraceTask(type=type(task).__name__, data=task.data)
        self.trace = Trace(task=recorded, agent=AgentInfo(config=AgentConfig(), name=name))
        self._system: str | None = task.data.system_prompt

    async def turn(self, message: str | None = None) -> _Segment:
        """Show a message, or the task's prompt, and return the reply."""
        from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage

        shown = self._task.data.prompt_text if message is None else message
        parts = [shown] if self._system is None else [self._system, shown]
        if self._system is not None:
            self._add(SystemMessage(content=self._system))
            self._system = None
        self._add(UserMessage(content=shown))
        reply = await self._exchange.ask("\n\n".join(parts))
        self._add(AssistantMessage(content=reply), sampled=True)
        return _Segment(reply)

    def _add(self, message: Any, *, sampled: bool = False) -> None:
        from verifiers.v1.graph import MessageNode

        parent = len(self.trace.nodes) - 1 if self.trace.nodes else None
        self.trace.nodes.append(MessageNode(parent=parent, message=message, sampled=sampled))


def _check_playable(name: str, task: Any) -> None:
    from verifiers.v1.task import Task

    kind = type(task)
    if task.NEEDS_CONTAINER or kind.setup is not Task.setup or kind.finalize is not Task.finalize:
        raise RecipeError(f"{name}: its tasks need a container, which gem-core does not provide.")
    if kind.toolsets(task.config):
        raise RecipeError(f"{name}: its tasks bring tools: name gem-core's in env.tools.")
