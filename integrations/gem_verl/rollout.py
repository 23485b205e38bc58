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

from gem_core.episode import Completion, Episode, FinishReason, Segment
from gem_core.errors import GemError
from gem_core.recipe import Recipe, recipe_from_dict
from gem_core.rollout import Request, play
from gem_core.tasks import MachineFactory, Task, eval_task, train_task
from gem_verl.advantages import Label

AGENT = "gem"


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
        self.held_out = "gem:held-out" in data_files
        train = recipe.train.steps * recipe.batch.episodes
        self.size = recipe.eval.inside_episodes if self.held_out else train

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "agent_name": AGENT,
            "index": index,
            "extra_info": {"held_out": self.held_out},
            "data_source": "gem:held-out" if self.held_out else "gem:train",
            "raw_prompt": [],  # the rest is what verl wants every row to have
            "reward_model": {},
            "tools_kwargs": {},
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
        }


class ServerPolicy:
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

    turn_rewards: list[tuple[int, float]] = []  # noqa: RUF012 - pydantic copies it
    """``(position in the response, reward)``."""

    def as_dict(self) -> dict[str, Any]:
        """Tensors as verl stores them; its own would put the sum of rewards on the last token."""
        fields = super().as_dict()
        fields.pop("turn_rewards", None)
        fields["rm_scores"] = torch.zeros(len(self.response_ids))
        for position, reward in self.turn_rewards:
            fields["rm_scores"][position] += reward
        return fields


@agent_loop.register(AGENT)
class GemAgentLoop(agent_loop.AgentLoopBase):
    """Plays one task. Environments that may block run in threads; see `gem_core.rollout.play`."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
        """Return the samples of one episode; a fault of the engine goes to the trainer as text."""
        text, index = self.data_config.gem_recipe, int(fields["index"])
        recipe, factory = read_recipe(text), _factory(text, self.tokenizer)
        held_out = fields["extra_info"]["held_out"]
        task = (eval_task if held_out else train_task)(recipe, index)
        policy = ServerPolicy(self.server_manager, sampling_params, factory.stop_ids)
        try:
            if not held_out and index // recipe.batch.episodes + 1 != fields["global_steps"]:
                raise GemError(f"Task {index} does not belong to step {fields['global_steps']}.")
            episode = await play(factory(task), policy)
            return to_samples(episode, task, factory.stop_ids, policy.versions)
        except Exception:
            fault = traceback.format_exc()
            return to_samples(Episode("", task.seed), task, factory.stop_ids, [], fault)


def to_samples(
    episode: Episode,
    task: Task,
    stop_ids: list[int],
    versions: list[int],
    fault: str | None = None,
) -> list[TurnOutput]:
    """One sample per segment; an episode without an action keeps one that nothing is trained on."""
    segments = [s for s in episode.segments if s.spans] or [_unplayed(episode, stop_ids[0])]
    record = json.dumps(episode.to_dict())
    extra = {
        "min_global_steps": min(versions, default=0),
        "max_global_steps": max(versions, default=0),
        "reward_extra_info": {"acc": float(episode.success)},
        "fault": fault,
    }
    samples = []
    for number, segment in enumerate(segments):
        start = segment.prompt_length if segment.spans else len(segment.token_ids) - 1
        label = Label(task.index, segment.spans[0][0] if segment.spans else 0, task.group, task.env)
        row = {"label": label.encode(), "episode": None if number else record}
        samples.append(
            TurnOutput(
                prompt_ids=segment.token_ids[:start],
                response_ids=segment.token_ids[start:],
                response_mask=segment.loss_mask[start:],
                response_logprobs=segment.logprobs and segment.logprobs[start:],
                reward_score=episode.total_reward,  # set, so that verl asks no reward function
                num_turns=len(episode.turns),
                metrics=agent_loop.AgentLoopMetrics(),
                turn_rewards=_turn_rewards(episode, segment, start),
                extra_fields=extra | row,
            )
        )
    return samples


def _turn_rewards(episode: Episode, segment: Segment, start: int) -> list[tuple[int, float]]:
    """Rewards of the turns that are trained on, which a token between must keep apart."""
    trained = [span for span in segment.spans if segment.loss_mask[span[1]]]
    for (_, _, end), (turn, begin, _) in pairwise(trained):
        if begin == end:
            raise GemError(
                f"Turn {turn} of {episode.env_id} follows the turn before without a token between: "
                "verl could not tell them apart. Use a template with text between."
            )
    return [(end - 1 - start, episode.turns[turn].reward) for turn, _, end in trained]


def _unplayed(episode: Episode, token: int) -> Segment:
    """A prompt and one token off the mask: verl's rows need both."""
    prompt = episode.segments[0].token_ids if episode.segments else []
    segment = Segment()
    segment.add_context([*(prompt or [token]), token])
    return segment
