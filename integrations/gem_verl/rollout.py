"""Episodes in verl: the task dataset, the policy over verl's servers, episodes as verl samples."""

from __future__ import annotations

import json
import traceback
import uuid
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch.utils.data import Dataset
from verl.experimental.agent_loop import agent_loop

from gem_core.adapters.token_rows import RowLabel
from gem_core.episodes.data import Completion, Episode, FinishReason, Segment
from gem_core.episodes.rollout import Request, play
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe, recipe_from_dict
from gem_core.training.tasks import MachineFactory, Task, eval_task, train_task

HELD_OUT = "gem:held-out"


@lru_cache(maxsize=8)
def read_recipe(text: str) -> Recipe:
    """The recipe in ``data.gem_recipe``."""
    return recipe_from_dict(json.loads(text))


@lru_cache(maxsize=8)
def _factory(text: str, tokenizer: Any) -> MachineFactory:
    """One factory per process: it caches the tokens of observations that repeat."""
    return MachineFactory(read_recipe(text), tokenizer)


class TaskDataset(Dataset):  # type: ignore[type-arg]
    """The run's tasks in order; no prompts, they come from the environments."""

    def __init__(self, data_files: Any, config: Any, **_: Any) -> None:
        recipe = read_recipe(config.gem_recipe)
        self.held_out = HELD_OUT in data_files
        train = recipe.train.steps * recipe.batch.episodes
        self.size = recipe.eval.inside_episodes if self.held_out else train

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "data_source": HELD_OUT if self.held_out else "gem:train",
            "raw_prompt": [],  # the rest is what verl wants every row to have
            "reward_model": {},
        }


class EnginePolicy:
    """verl's generation servers as a policy; one instance per episode (sticky routing)."""

    def __init__(self, client: Any, sampling: dict[str, Any], stop_ids: list[int]) -> None:
        self.client, self.stop_ids = client, stop_ids
        self.sampling = {**sampling, "stop_token_ids": stop_ids}
        self.request_id = uuid.uuid4().hex
        self.versions: list[int] = []
        """Weight versions that took part."""

    async def complete(self, request: Request) -> Completion:
        """Sample one turn: at most its token cap, up to and with a stop token."""
        sampling = {**self.sampling, "max_tokens": request.max_tokens}
        output = await self.client.generate(
            self.request_id, prompt_ids=request.prompt_ids, sampling_params=sampling
        )
        if output.stop_reason in ("aborted", "abort"):
            return Completion([], finish_reason=FinishReason.ABORT)
        versions = (output.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
        self.versions += [version for version in versions if version is not None]
        ids = [int(i) for i in output.token_ids]
        closed = bool(ids) and ids[-1] in self.stop_ids
        if not closed and len(ids) < request.max_tokens:
            raise GemError(
                f"The engine returned {len(ids)} of {request.max_tokens} tokens, no stop token: "
                "it strips them, or the model's context is full (set limits.max_context_tokens)."
            )
        logprobs = None if output.log_probs is None else [float(x) for x in output.log_probs]
        return Completion(ids, logprobs, FinishReason.STOP if closed else FinishReason.LENGTH)


class TurnOutput(agent_loop.AgentLoopOutput):
    """A verl sample with the reward of every turn on the turn's last token."""

    rm_scores: list[float]
    """One number per token of the response."""

    def as_dict(self) -> dict[str, Any]:
        """Tensors as verl stores them; its own would put the sum of rewards on the last token."""
        return super().as_dict() | {"rm_scores": torch.tensor(self.rm_scores)}


@agent_loop.register("gem")
class GemAgentLoop(agent_loop.AgentLoopBase):
    """Plays one task; environments that may block run in threads, see `play`."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
        """Return the samples of one episode; a fault of the engine goes to the trainer as text."""
        factory, index = _factory(self.data_config.gem_recipe, self.tokenizer), int(fields["index"])
        recipe, held_out = factory.recipe, fields["data_source"] == HELD_OUT
        task = (eval_task if held_out else train_task)(recipe, index)
        policy = EnginePolicy(self.server_manager, sampling_params, factory.stop_ids)
        try:
            if not held_out and index // recipe.batch.episodes + 1 != fields["global_steps"]:
                raise GemError(f"Task {index} does not belong to step {fields['global_steps']}.")
            episode = await play(factory(task), policy)
            return to_native(episode, task, factory.stop_ids, policy.versions)
        except Exception:
            fault = traceback.format_exc()
            return to_native(Episode("", task.seed), task, factory.stop_ids, [], fault)


def to_native(
    episode: Episode, task: Task, stop_ids: list[int], versions: list[int], fault: str | None = None
) -> list[TurnOutput]:
    """One sample per segment; an episode without an action keeps one that nothing is trained on."""
    record: str | None = json.dumps(episode.to_dict())
    samples = []
    for segment in [s for s in episode.segments if s.spans] or [_unplayed(episode, stop_ids[0])]:
        start, turn = len(segment.token_ids) - 1, 0
        if segment.spans:
            start, turn = segment.prompt_length, segment.spans[0][0]
        extra = {
            "min_global_steps": min(versions, default=0),
            "max_global_steps": max(versions, default=0),
            "reward_extra_info": {"acc": float(episode.success)},
            "fault": fault,
            "label": RowLabel(task.index, turn, task.group, task.env).encode(),
            "episode": record,
        }
        samples.append(
            TurnOutput(
                prompt_ids=segment.token_ids[:start],
                response_ids=segment.token_ids[start:],
                response_mask=segment.loss_mask[start:],
                response_logprobs=segment.logprobs and segment.logprobs[start:],
                rm_scores=_token_rewards(episode, segment)[start:],
                reward_score=episode.total_reward,  # set, so that verl asks no reward function
                num_turns=len(episode.turns),
                metrics=agent_loop.AgentLoopMetrics(),
                extra_fields=extra,
            )
        )
        record = None  # once per episode
    return samples


def _token_rewards(episode: Episode, segment: Segment) -> list[float]:
    """Rewards of the turns that are trained on, which a token between must keep apart."""
    rewards = [0.0] * len(segment.token_ids)
    trained = [span for span in segment.spans if segment.loss_mask[span[1]]]
    for (_, _, end), (turn, begin, _) in pairwise(trained):
        if begin == end:
            raise GemError(
                f"Turn {turn} of {episode.env_id} follows the turn before without a token between: "
                "verl could not tell them apart. Use a template with text between."
            )
    for turn, _, end in trained:
        rewards[end - 1] = episode.turns[turn].reward
    return rewards


def _unplayed(episode: Episode, token: int) -> Segment:
    """A prompt and one token off the mask: verl's rows need both."""
    prompt = episode.segments[0].token_ids if episode.segments else []
    ids = [*(prompt or [token]), token]
    return Segment(ids, [0] * len(ids), [0.0] * len(ids))
