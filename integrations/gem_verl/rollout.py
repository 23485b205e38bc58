"""Episodes in verl: the task dataset, verl's servers as a policy, episodes as verl samples."""

from __future__ import annotations

import json
import traceback
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import Dataset
from verl.experimental.agent_loop import agent_loop

from gem_adapters.estimate import needs_critic
from gem_adapters.request_seeds import sglang_seed
from gem_adapters.support import SUPPORT
from gem_adapters.token_rows import RowLabel, token_rewards
from gem_adapters.versions import VERSION, pick_version
from gem_core.episodes.data import Completion, Episode, Segment
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play
from gem_core.errors import GemError
from gem_core.policies.completions import to_completion
from gem_core.runs.recipe.load import stored_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory, Task, eval_task, train_task

EVALUATION = "gem:eval"
"""verl's name for the evaluation tasks: in ``data.val_files``, and each row's ``data_source``."""
TRAIN = "gem:train"
"""verl's name for the training tasks."""


@lru_cache(maxsize=8)
def read_recipe(text: str) -> Recipe:
    """Read the recipe in ``data.gem_recipe``."""
    return stored_recipe(json.loads(text))


@lru_cache(maxsize=8)
def _factory(text: str, tokenizer: Any) -> MachineFactory:
    """Return the factory of this process: it caches the tokens of observations that repeat."""
    return MachineFactory(read_recipe(text), tokenizer)


class TaskDataset(Dataset):
    """The run's tasks in order; no prompts, they come from the environments."""

    def __init__(self, data_files: Any, config: Any, **_: Any) -> None:
        recipe = read_recipe(config.gem_recipe)
        self.evaluates = EVALUATION in data_files
        if self.evaluates:
            self.size = recipe.eval.inside_episodes
        else:
            self.size = recipe.train.steps * recipe.batch.episodes

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "data_source": EVALUATION if self.evaluates else TRAIN,
            "raw_prompt": [],  # the rest is what verl wants every row to have
            "reward_model": {},
        }


class EnginePolicy:
    """verl's generation servers as a policy; one instance per episode (sticky routing).

    Args:
        client: verl's client of its servers.
        sampling: verl's sampling parameters of the run.
        stop_ids: ids that end a turn.
        engine: verl's name of its engine.
        context: number of tokens that fit into the engine, None where it is not known.
        over_drawn: whether the engine reports which tokens could be drawn; that of a CPU can.
        recipe: the experiment, where old weights may sample.

    Attributes:
        versions: versions of the weights that took part, by verl's count of steps.
    """

    def __init__(
        self,
        client: Any,
        sampling: dict[str, Any],
        stop_ids: list[int],
        engine: str = "vllm",
        context: int | None = None,
        over_drawn: bool = False,
        recipe: Recipe | None = None,
    ) -> None:
        self.over_drawn = over_drawn
        self.recipe = recipe
        self.client = client
        self.engine = engine
        self.context = context
        self.stop_ids = stop_ids
        asked = {SUPPORT: True} if over_drawn else {}
        self.sampling = {**sampling, "stop_token_ids": stop_ids, **asked}
        self.request_id = uuid.uuid4().hex
        self.versions: list[int] = []

    def _seed(self, request: Request) -> dict[str, int | None]:
        """Return the request's seed in the engine's own field."""
        return sglang_seed(request.seed) if self.engine == "sglang" else {"seed": request.seed}

    async def complete(self, request: Request) -> Completion:
        """Sample one turn: at most its token cap, up to and with a stop token."""
        version = self.recipe and pick_version(self.recipe, request.machine)
        output = await self.client.generate(
            self.request_id,
            prompt_ids=request.prompt_ids,
            sampling_params={
                **self.sampling,
                "max_tokens": request.max_tokens,
                **self._seed(request),
                **({} if version is None else {VERSION: version}),
            },
        )
        for name in ("min_global_steps", "max_global_steps"):
            version = output.extra_fields.get(name)
            if version is not None:
                self.versions.append(version)
        completion = to_completion(
            output.token_ids,
            output.log_probs,
            self._reason(output, request),
            self.stop_ids,
            request.max_tokens,
        )
        if self.over_drawn:
            sets = output.extra_fields.get(SUPPORT)
            completion.support = sets if completion.token_ids else []
        completion.version = output.extra_fields.get("min_global_steps")
        return completion

    def _reason(self, output: Any, request: Request) -> str | None:
        """Return why the engine stopped.

        verl's vLLM server writes "completed" for a stop as for a length. Fewer tokens than the cap,
        in a context that is not full, end in a stop token, be it one that only the model's
        generation configuration lists.
        """
        sampled = len(output.token_ids)
        room = self.context is None or len(request.prompt_ids) + sampled < self.context
        if output.stop_reason == "completed" and 0 < sampled < request.max_tokens and room:
            return "stop"
        reason: str | None = output.stop_reason
        return reason


class TurnOutput(agent_loop.AgentLoopOutput):
    """A verl sample with the reward of every turn on the turn's last token.

    Attributes:
        rm_scores: one number per token of the response.
        support: of the response, see `gem_verl.support.encode`; None where none is kept.
    """

    rm_scores: list[float]
    support: list[int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return tensors as verl stores them; verl's own would put all reward on the last token."""
        fields = super().as_dict() | {"rm_scores": torch.tensor(self.rm_scores)}
        support = fields.pop("support", None)
        if support is not None:
            fields[SUPPORT] = torch.tensor(support, dtype=torch.int64)
        return fields


@agent_loop.register("gem")
class GemAgentLoop(agent_loop.AgentLoopBase):
    """Plays one task; environments that may block run in threads, see `play`."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[TurnOutput]:
        """Return the samples of one episode; a fault of the engine goes to the trainer as text."""
        factory = _factory(self.data_config.gem_recipe, self.tokenizer)
        index = int(fields["index"])
        evaluates = fields["data_source"] == EVALUATION
        pick_task = eval_task if evaluates else train_task
        task = pick_task(factory.recipe, index)
        rollout = self.rollout_config
        drawn = factory.recipe.sampling.support == "drawn" and not evaluates
        policy = EnginePolicy(
            self.server_manager,
            sampling_params,
            factory.stop_ids,
            rollout.name,
            rollout.max_model_len,
            drawn,
            factory.recipe,
        )
        try:
            if not evaluates:
                _require_task_of_step(factory.recipe, index, fields["global_steps"])
            machine = factory(task)
            episode = await play(machine, policy)
            final = _final_state(factory.recipe, machine)
            versions = policy.versions
            return to_native(episode, task, factory.stop_ids, versions, final=final, drawn=drawn)
        except Exception:
            fault = traceback.format_exc()
            return to_native(Episode("", task.seed), task, factory.stop_ids, [], fault)


def _require_task_of_step(recipe: Recipe, index: int, step: int) -> None:
    if index // recipe.batch.episodes + 1 != step:
        raise GemError(
            f"Task {index} does not belong to step {step}: verl's data order was changed; remove "
            "what changes it from [trainer.verl]."
        )


def _final_state(recipe: Recipe, machine: EpisodeMachine) -> list[int]:
    """Return the state for the critic to value, where it and one more token fit into a row."""
    if not needs_critic(recipe):
        return []
    state = machine.bootstrap_state()
    limit = recipe.limits.max_context_tokens
    return state if limit is None or len(state) < limit else []


def to_native(
    episode: Episode,
    task: Task,
    stop_ids: list[int],
    versions: list[int],
    fault: str | None = None,
    *,
    final: Sequence[int] = (),
    drawn: bool = False,
) -> list[TurnOutput]:
    """Convert an episode.

    Args:
        episode: an episode that has ended.
        task: what it played.
        stop_ids: ids that end a turn.
        versions: versions of the weights that took part, none where no engine did.
        fault: what went wrong with the engine, None where nothing did.
        final: ids of the state in which a limit cut the episode, see
            `EpisodeMachine.bootstrap_state`. Where they continue the last segment they are in its
            sample, and one more token, for verl's critic values the states *before* tokens.
        drawn: whether samples have the tokens that could be drawn.

    Returns:
        One sample per segment with turns; for an episode without a turn one sample that nothing is
        trained on. The first sample carries the whole episode.

    Raises:
        GemError: two turns of a segment have no token between them.
    """
    segments = [segment for segment in episode.segments if segment.spans]
    if not segments:
        segments = [_placeholder(episode, stop_ids[0])]
    tail = _tail(segments[-1], final, stop_ids[0])
    samples = []
    for number, segment in enumerate(segments):
        added = tail if segment is segments[-1] else []
        label = RowLabel(
            episode=task.index,
            turn=_first_turn(segment),
            group=task.group,
            env=task.env,
            final=_after_actions(segment) + len(added) if added else 0,
        )
        extra_fields = {
            "min_global_steps": min(versions, default=0),
            "max_global_steps": max(versions, default=0),
            "reward_extra_info": {"acc": float(episode.success)},
            "fault": fault,
            "label": label.encode(),
            "episode": json.dumps(episode.to_dict()) if number == 0 else None,
        }
        samples.append(_sample(episode, segment, added, extra_fields))
        if drawn:
            samples[-1].support = _support(segment, len(samples[-1].response_ids), len(added))
    return samples


def _support(segment: Segment, length: int, added: int) -> list[int]:
    """Return the sets of a response of ``length`` tokens, of which the last ``added`` have none."""
    from gem_verl.support import encode

    whole = segment.support or [None] * len(segment.token_ids)
    return encode([*whole[len(whole) + added - length :], *[None] * added])


def _tail(segment: Segment, final: Sequence[int], token: int) -> list[int]:
    """Return what follows the segment in the state ``final``, and ``token``; empty where not."""
    length = len(segment.token_ids)
    if not any(segment.loss_mask) or list(final[:length]) != segment.token_ids:
        return []
    return [*final[length:], token]


def _after_actions(segment: Segment) -> int:
    """Return the number of tokens after the last one that is trained on."""
    return segment.loss_mask[::-1].index(1)


def _sample(
    episode: Episode, segment: Segment, tail: list[int], extra_fields: dict[str, Any]
) -> TurnOutput:
    """Return the sample of one segment; the response begins with its first action.

    Args:
        episode: of the segment.
        segment: with at least one token.
        tail: tokens that follow it and are not trained on.
        extra_fields: verl's.
    """
    start = segment.prompt_length if segment.spans else len(segment.token_ids) - 1
    logprobs = segment.logprobs
    unused = [0] * len(tail)
    return TurnOutput(
        prompt_ids=segment.token_ids[:start],
        response_ids=[*segment.token_ids[start:], *tail],
        response_mask=[*segment.loss_mask[start:], *unused],
        response_logprobs=logprobs and [*logprobs[start:], *map(float, unused)],
        rm_scores=[*token_rewards(episode, segment)[start:], *map(float, unused)],
        reward_score=episode.total_reward,  # set, so that verl asks no reward function
        num_turns=len(episode.turns),
        metrics=agent_loop.AgentLoopMetrics(),
        extra_fields=extra_fields,
    )


def _first_turn(segment: Segment) -> int:
    return segment.spans[0][0] if segment.spans else 0


def _placeholder(episode: Episode, token: int) -> Segment:
    """Return a prompt and one token outside the mask: verl's rows need both."""
    prompt = episode.segments[0].token_ids if episode.segments else []
    ids = [*(prompt or [token]), token]
    return Segment(ids, [0] * len(ids), [0.0] * len(ids))
