"""Episodes by Oat's own vLLM actor, and episodes as Oat's rows: one ``TransitionData`` each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import vllm
from msgspec.structs import asdict
from oat.algorithms.ppo import PPOActor
from oat.types import TransitionData

from gem_adapters.support import SUPPORT
from gem_adapters.versions import VERSION, name_missing, pick_version
from gem_adapters.vllm_steps import StepPolicy
from gem_core.env.blocking import never_blocks
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play_batch, play_many, require_healthy
from gem_core.policies.completions import vllm_completion
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory, Task, eval_task, step_tasks, train_task
from gem_oat import _compat
from gem_oat.rows import SegmentRow, bootstrap_row, segment_rows, turn_rows


@dataclass
class RowData(TransitionData):
    """Oat's row, what gem_core knows of it and, in the first row of a learner, the episodes."""

    row: SegmentRow = SegmentRow()  # noqa: RUF009 - immutable
    episodes: list[Episode] = field(default_factory=list)


def to_native(
    episode: Episode, number: int, env: int, bootstrap_state: Sequence[int] = ()
) -> list[RowData]:
    """``episode`` as Oat's rows: one, or one per segment where its history is rewritten.

    A row's prompt is what comes before its first action, its response all that follows. The rewards
    of its turns are in ``row``: Oat has room for one.

    Args:
        episode: a finished episode.
        number: identifies it in the run.
        env: identifies its environment, alike on all ranks.
        bootstrap_state: ids of the state in which a limit cut it, for a critic; may be empty.

    Raises:
        GemError: as `gem_oat.rows.turn_rows`.
    """
    rows = turn_rows(episode, number, env)
    if bootstrap_state:
        rows.append(bootstrap_row(episode, number, env, bootstrap_state))
    return [to_data(row) for row in segment_rows(rows)]


def to_data(row: SegmentRow) -> RowData:
    """``row`` as Oat's; without a trained turn it is masked."""
    start = len(row.turns[0].prompt) if row.turns else 1
    logprobs = [logprob for turn in row.trained for logprob in turn.logprobs]
    return RowData(
        prompt="",
        prompt_ids=list(row.token_ids[:start]),
        response="",
        response_ids=list(row.token_ids[start:]),
        response_logprobs=logprobs or [0.0],
        rewards=[0.0],
        loss_mask=bool(row.trained),
        info={},
        row=row,
    )


def pad_rows(rows: list[RowData], count: int) -> list[RowData]:
    """``rows`` filled up to ``count`` with masked rows."""
    return rows + [to_data(SegmentRow()) for _ in range(count - len(rows))]


@dataclass(frozen=True)
class EnginePolicy:
    """Oat's vLLM engine as a policy (`gem_core.episodes.rollout.BatchPolicy`).

    Each request carries its own seed: Oat seeds its engine by the clock, and no run could be
    repeated.

    Attributes:
        engine: a ``vllm.LLM``.
        stop_ids: token ids that end an action.
        sampling: further fields of ``vllm.SamplingParams``, such as the temperature.
        over_drawn: whether the engine reports which tokens could be drawn; that of a CPU can.
        recipe: the experiment, where old weights may sample.
    """

    engine: Any
    stop_ids: Sequence[int]
    sampling: dict[str, Any]
    over_drawn: bool = False
    recipe: Recipe | None = None

    def play(self, machines: Sequence[EpisodeMachine]) -> list[Episode]:
        """Play ``machines`` to their ends.

        Where an environment can block, each request enters vLLM on its own, so that no episode
        waits for another. The stand-in for vLLM takes whole batches only.
        """
        engine = getattr(self.engine, "llm_engine", None)
        if not hasattr(engine, "add_request") or all(never_blocks(m.env) for m in machines):
            return play_batch(machines, self)
        policy = StepPolicy(engine, self._final_params, self.stop_ids)
        return asyncio.run(play_many(machines, policy, concurrency=len(machines)))

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion per request, in one call of the engine."""
        outputs = self.engine.generate(
            prompt_token_ids=[request.prompt_ids for request in requests],
            sampling_params=[self._sampling_params(request) for request in requests],
            use_tqdm=False,
        )
        return [
            self._completion(output.outputs[0], request)
            for output, request in zip(outputs, requests, strict=True)
        ]

    def _completion(self, answer: Any, request: Request) -> Completion:
        completion = vllm_completion(answer, self.stop_ids, request.max_tokens)
        if self.over_drawn:
            completion.support = answer.support if completion.token_ids else []
        completion.version = getattr(answer, "version", None)  # vLLM has none
        return completion

    def _sampling_params(self, request: Request) -> Any:
        asked: dict[str, Any] = {SUPPORT: True} if self.over_drawn else {}
        version = self.recipe and pick_version(self.recipe, request.machine)
        if version is not None:
            asked[VERSION] = version
        return vllm.SamplingParams(
            **self.sampling,
            **({"extra_args": asked} if asked else {}),
            stop_token_ids=self.stop_ids,
            logprobs=0,  # of the sampled token alone
            max_tokens=request.max_tokens,
            seed=request.seed,
        )

    def _final_params(self, request: Request) -> Any:
        """What ``vllm.LLM.generate`` makes of them: the output comes when it is complete."""
        from vllm.sampling_params import RequestOutputKind  # the stand-in has none

        params = self._sampling_params(request)
        params.output_kind = RequestOutputKind.FINAL_ONLY
        return params


class GemActor(PPOActor):
    """Oat's actor playing whole episodes; Oat's engine, weight sync and transport stay.

    Attributes:
        recipe: the experiment.
        factory: makes the machine of a task.
        policy: Oat's engine, sampling as in training.
        weights_version: of the engine's weights, see `gem_adapters.versions`.
    """

    weights_version = 0

    def init(self, actor_id: int, save_path: str) -> None:
        """Build Oat's engine; the learner calls this."""
        self.recipe: Recipe = self.args.gem.recipe
        _compat.report_what_is_sampled(self.recipe.sampling)
        super().init(actor_id, save_path)
        self.factory = MachineFactory(self.recipe, self.tokenizer)
        drawn_by = asdict(self.recipe.sampling)
        self.policy = EnginePolicy(
            self.llm,
            self.factory.stop_ids,
            sampling={name: drawn_by[name] for name in ("temperature", "top_p", "top_k")},
            over_drawn=self.recipe.sampling.support == "drawn",
            recipe=self.recipe,
        )

    def set_version(self, version: int) -> None:
        """The learner has sent all weights after training step ``version``."""
        self.weights_version = version
        engines = getattr(self.llm, "engines", None)  # of the stand-in
        if engines is not None:
            engines.name(version)

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
        all_tasks = [task for tasks in shards for task in tasks]
        machines = iter(self.play(all_tasks, self.policy))
        parts = [self.to_rows(list(islice(machines, len(tasks)))) for tasks in shards]
        return self.hand_over(parts)

    def run_eval(self, step: int, indices: list[int]) -> bytes:
        """Play evaluation episodes; returns the handle of the list of episodes.

        Args:
            step: training steps so far; not used.
            indices: of the evaluation tasks.
        """
        own = {"temperature": self.recipe.eval.temperature, "top_p": self.recipe.eval_top_p}
        sampling = {**self.policy.sampling, **own}
        policy = replace(self.policy, sampling=sampling, over_drawn=False)
        machines = self.play([eval_task(self.recipe, index) for index in indices], policy)
        return self.ipc_client.serialize_ipc([machine.episode for machine in machines])

    def play(self, tasks: Sequence[Task], policy: EnginePolicy) -> list[EpisodeMachine]:
        """Play the episodes of ``tasks``, all at once; see `EnginePolicy.play`.

        Raises:
            GemError: most of the episodes broke.
        """
        machines = [self.factory(task) for task in tasks]
        episodes = policy.play(machines)
        require_healthy(episodes)
        name_missing(episodes, self.weights_version)
        return machines

    def to_rows(self, machines: Sequence[EpisodeMachine]) -> list[RowData]:
        """The rows of one learner, at least one; the first carries the episodes."""
        has_critic = self.args.critic_type == "ppo"
        rows: list[RowData] = []
        for machine in machines:
            env = train_task(self.recipe, machine.index).env
            state = machine.bootstrap_state() if has_critic else []
            rows += to_native(machine.episode, machine.index, env, state)
        rows = pad_rows(rows, 1)
        rows[0].episodes = [machine.episode for machine in machines]
        return rows

    def hand_over(self, parts: Sequence[list[RowData]]) -> bytes:
        """Handle of the rows of all learners, filled up to equally many."""
        longest = max(len(part) for part in parts)
        padded = [row for part in parts for row in pad_rows(part, longest)]
        return self.ipc_client.serialize_ipc(padded)
