"""Episodes by Oat's own vLLM actor, and episodes as Oat's rows: one ``TransitionData`` per turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import vllm
from oat.algorithms.ppo import PPOActor
from oat.types import TransitionData

from gem_core.episode import Completion, Episode, FinishReason, StopReason
from gem_core.errors import GemError
from gem_core.machine import EpisodeMachine
from gem_core.recipe import Recipe
from gem_core.rollout import Request, play_batch, require_healthy
from gem_core.tasks import MachineFactory, Task, eval_task, step_tasks

PAD = 0  # token of masked rows; any legal id will do


class Row(NamedTuple):
    """What the learner must know of a row beside its tokens; travels in ``TransitionData.info``.

    ``turn`` counts from 0 in its ``episode`` (-1 in padding). ``excluded`` rows are in no statistic
    and no loss. A ``state`` row is what a truncated episode ended in, to bootstrap from its value.
    """

    episode: int
    turn: int = 0
    segment: int = 0
    group: int = 0
    env: int = 0
    reward: float = 0.0
    excluded: bool = True
    state: bool = False


def to_rows(episode: Episode, number: int, env: int) -> list[TransitionData]:
    """One row per turn: prompt = all tokens before the action, response = the sampled tokens.

    Args:
        episode: a finished episode.
        number: identifies it in the batch.
        env: identifies its environment, alike on all ranks.

    Raises:
        GemError: a turn has no log-probabilities, or is masked in part.
    """
    rows = []
    for index, turn, start, end in episode.spans():
        segment, played = episode.segments[index], episode.turns[turn]
        if segment.logprobs is None:
            raise GemError("Oat needs the sampling log-probability of every token.")
        if any(bool(on) == played.aborted for on in segment.loss_mask[start:end]):
            raise GemError(f"Episode {number}, turn {turn}: Oat masks whole turns, not tokens.")
        row = Row(number, turn, index, episode.group, env, played.reward, played.aborted)
        rows.append(
            TransitionData(
                prompt=played.observation,
                prompt_ids=segment.token_ids[:start],
                response=played.action,
                response_ids=segment.token_ids[start:end],
                response_logprobs=segment.logprobs[start:end],
                rewards=[0.0] * (end - start - 1) + [played.reward],
                loss_mask=not played.aborted,
                info={"row": row},
            )
        )
    return rows


def masked_row(row: Row, prompt_ids: list[int]) -> TransitionData:
    """A row that is trained on nowhere: padding, or a state whose value is read."""
    return TransitionData("", prompt_ids, "", [PAD], [0.0], [0.0], False, {"row": row})


def pad_rows(rows: list[TransitionData], count: int) -> list[TransitionData]:
    """``rows`` filled up to ``count`` with masked rows."""
    return rows + [masked_row(Row(-1), [PAD]) for _ in range(count - len(rows))]


def state_rows(machine: EpisodeMachine, number: int, env: int) -> list[TransitionData]:
    """The state after the last action of an episode that met its turn limit, for the critic.

    Empty for other ends, and where the state fits no context: nothing is bootstrapped there.
    """
    episode, tokenizer = machine.episode, machine.context.tokenizer
    if episode.stop_reason is not StopReason.TRUNCATED_TURNS or tokenizer is None:
        return []
    last, limit = episode.turns[-1], machine.limits.max_context_tokens
    closed = last.finish_reason is FinishReason.STOP
    text, fresh = machine.context.extend(last.action, closed, episode.final_observation, last.info)
    ids = ([] if fresh else episode.segments[-1].token_ids) + tokenizer.encode(text)
    if limit is not None and len(ids) >= limit:
        return []
    row = Row(number, len(episode.turns), 0, episode.group, env, state=True)
    return [masked_row(row, ids)]


def shard_tasks(recipe: Recipe, prompt: str) -> list[Task]:
    """The tasks behind one item of the learner's dataset, ``"step/shard/shards"``."""
    step, shard, shards = map(int, prompt.split("/"))
    size = recipe.batch.episodes // shards
    return step_tasks(recipe, step)[shard * size : (shard + 1) * size]


class GemActor(PPOActor):
    """Oat's actor playing whole episodes; Oat's engine, weight sync and transport stay."""

    def init(self, actor_id: int, save_path: str) -> None:
        """Build Oat's engine; the learner calls this."""
        super().init(actor_id, save_path)
        self.recipe: Recipe = self.args.gem.recipe
        self.factory = MachineFactory(self.recipe, self.tokenizer)
        self._sampling: dict[str, Any] = {}
        self._seeds: dict[EpisodeMachine, str] = {}

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
            episodes as ``info["episodes"]``.
        """
        parts = [shard_tasks(self.recipe, prompt) for prompt in prompts]
        sampling, tasks = self.recipe.sampling, [task for part in parts for task in part]
        machines = iter(
            self._play(
                tasks, f"train/{self.recipe.seed}",
                temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k,
            )
        )  # fmt: skip
        shards = [self._rows([(next(machines), task) for task in part]) for part in parts]
        longest = max(map(len, shards))
        padded = [row for shard in shards for row in pad_rows(shard, longest)]
        handle: bytes = self.ipc_client.serialize_ipc(padded)
        return handle

    def run_eval(self, step: int, indices: list[int]) -> bytes:
        """Play held-out episodes; returns the handle of the list of episodes."""
        tasks = [eval_task(self.recipe, index) for index in indices]
        salt = f"eval/{self.recipe.seed}/{step}"
        machines = self._play(tasks, salt, temperature=self.recipe.eval.temperature)
        handle: bytes = self.ipc_client.serialize_ipc([machine.episode for machine in machines])
        return handle

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """One call of the vLLM engine (`gem_core.rollout.BatchPolicy`)."""
        outputs = self.llm.generate(
            prompt_token_ids=[request.prompt_ids for request in requests],
            sampling_params=[self._params(request) for request in requests],
            use_tqdm=False,
        )
        return [_completion(output.outputs[0]) for output in outputs]

    def _play(self, tasks: list[Task], salt: str, **sampling: Any) -> list[EpisodeMachine]:
        machines = [self.factory(task) for task in tasks]
        self._sampling = sampling
        self._seeds = {m: f"{salt}/{t.index}" for m, t in zip(machines, tasks, strict=True)}
        require_healthy(play_batch(machines, self))
        return machines

    def _params(self, request: Request) -> Any:
        # Seeded per request: Oat seeds its engine by the clock, and no run could be repeated.
        seed = random.Random(f"{self._seeds[request.machine]}/{request.machine.turn}")
        return vllm.SamplingParams(
            **self._sampling,
            max_tokens=request.max_tokens,
            stop_token_ids=self.factory.stop_ids,
            logprobs=0,
            seed=seed.getrandbits(31),
        )

    def _rows(self, played: list[tuple[EpisodeMachine, Task]]) -> list[TransitionData]:
        rows: list[TransitionData] = []
        for machine, task in played:
            rows += to_rows(machine.episode, task.index, task.env)
            if self.args.critic_type == "ppo":
                rows += state_rows(machine, task.index, task.env)
        rows = rows or pad_rows([], 1)
        rows[0].info["episodes"] = [machine.episode for machine, _ in played]
        return rows


def _completion(output: Any) -> Completion:
    """vLLM's output as ours; ``logprobs`` holds one dictionary per token."""
    ids = list(output.token_ids)
    logprobs = [at[token].logprob for at, token in zip(output.logprobs or [], ids, strict=True)]
    return Completion(ids, logprobs, FinishReason(output.finish_reason))
