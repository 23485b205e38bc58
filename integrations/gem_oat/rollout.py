"""Episodes by Oat's own vLLM actor, and episodes as Oat's rows: one ``TransitionData`` per turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import vllm
from msgspec.structs import asdict
from oat.algorithms.ppo import PPOActor
from oat.types import TransitionData

from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play_batch, require_healthy
from gem_core.training.recipe import Recipe
from gem_core.training.tasks import MachineFactory, Task, eval_task, step_tasks, train_task
from gem_oat.rows import Row, state_rows, turn_rows


@dataclass
class TurnData(TransitionData):
    """Oat's row, what gem_core knows of it and, in the first row of a learner, the episodes."""

    row: Row = Row(-1)  # noqa: RUF009 - immutable
    episodes: list[Episode] = field(default_factory=list)


def to_native(row: Row) -> TurnData:
    """``row`` as Oat's: prompt = all tokens before the action, response = the sampled tokens."""
    return TurnData(
        prompt=row.texts[0],
        prompt_ids=list(row.prompt),
        response=row.texts[1],
        response_ids=list(row.response),
        response_logprobs=list(row.logprobs),
        rewards=[0.0] * (len(row.response) - 1) + [row.reward],
        loss_mask=not row.excluded,
        info={},
        row=row,
    )


def pad_rows(rows: list[TurnData], count: int) -> list[TurnData]:
    """``rows`` filled up to ``count`` with masked rows."""
    return rows + [to_native(Row(-1)) for _ in range(count - len(rows))]


class GemActor(PPOActor):
    """Oat's actor playing whole episodes; Oat's engine, weight sync and transport stay."""

    def init(self, actor_id: int, save_path: str) -> None:
        """Build Oat's engine; the learner calls this."""
        super().init(actor_id, save_path)
        self.recipe: Recipe = self.args.gem.recipe
        self.factory = MachineFactory(self.recipe, self.tokenizer)

    def step(
        self, prompts: list[str], formatted_prompts: list[str], references: list[str] | None = None
    ) -> bytes:
        """Play this actor's part of a training step; the signature is Oat's.

        Args:
            prompts: one ``"step/shard/shards"`` per learner that this actor feeds.
            formatted_prompts: not used.
            references: not used.

        Returns:
            Handle of the rows, equally many per learner; each learner's first row carries the
            episodes.
        """
        shards = [step_tasks(self.recipe, *map(int, prompt.split("/"))) for prompt in prompts]
        salt, sampling = f"train/{self.recipe.seed}", asdict(self.recipe.sampling)
        machines = iter(self._play([task for tasks in shards for task in tasks], salt, sampling))
        parts = [self._rows(list(islice(machines, len(tasks)))) for tasks in shards]
        longest = max(map(len, parts))
        padded = [row for part in parts for row in pad_rows(part, longest)]
        return self.ipc_client.serialize_ipc(padded)

    def run_eval(self, step: int, indices: list[int]) -> bytes:
        """Play held-out episodes; returns the handle of the list of episodes."""
        tasks = [eval_task(self.recipe, index) for index in indices]
        salt, sampling = (
            f"eval/{self.recipe.seed}/{step}",
            {"temperature": self.recipe.eval.temperature},
        )
        machines = self._play(tasks, salt, sampling)
        return self.ipc_client.serialize_ipc([machine.episode for machine in machines])

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """One call of the vLLM engine (`gem_core.episodes.rollout.BatchPolicy`)."""
        outputs = self.llm.generate(
            prompt_token_ids=[request.prompt_ids for request in requests],
            sampling_params=[self._params(request) for request in requests],
            use_tqdm=False,
        )
        return [_completion(output.outputs[0]) for output in outputs]

    def _play(self, tasks: list[Task], salt: str, sampling: dict[str, Any]) -> list[EpisodeMachine]:
        machines = [self.factory(task) for task in tasks]
        self.salt, self.sampling = salt, sampling
        require_healthy(play_batch(machines, self))
        return machines

    def _params(self, request: Request) -> Any:
        # Seeded per request: Oat seeds its engine by the clock, and no run could be repeated.
        machine, limit = request.machine, request.max_tokens
        seed = random.Random(f"{self.salt}/{machine.index}/{machine.turn}").getrandbits(31)
        fixed = {"stop_token_ids": self.factory.stop_ids, "logprobs": 0}
        return vllm.SamplingParams(**self.sampling, **fixed, max_tokens=limit, seed=seed)

    def _rows(self, machines: list[EpisodeMachine]) -> list[TurnData]:
        rows: list[Row] = []
        for machine in machines:
            number, env = machine.index, train_task(self.recipe, machine.index).env
            rows += turn_rows(machine.episode, number, env)
            if self.args.critic_type == "ppo":
                rows += state_rows(machine, number, env)
        data = [to_native(row) for row in rows or [Row(-1)]]
        data[0].episodes = [machine.episode for machine in machines]
        return data


def _completion(output: Any) -> Completion:
    """vLLM's output as ours; ``logprobs`` holds one dictionary per token."""
    ids = list(output.token_ids)
    logprobs = [at[token].logprob for at, token in zip(output.logprobs or [], ids, strict=True)]
    return Completion(ids, logprobs, FinishReason(output.finish_reason))
