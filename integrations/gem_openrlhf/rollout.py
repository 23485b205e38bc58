"""Episodes in OpenRLHF: an agent executor that plays them, and the response they become.

OpenRLHF loads this file by path in each vLLM actor (``--train.agent_func_path``) and calls
``AgentExecutor.execute`` once per sample. Its own multi-turn executor is not used: it shares one
SamplingParams between samples, gives a turn the whole context, sums the turn rewards, and awaits
the environment inside the engine's event loop.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

from msgspec.structs import replace
from openrlhf.utils.agent import AgentExecutorBase
from transformers import AutoTokenizer

import gem_openrlhf._compat  # noqa: F401
from gem_core.episodes.data import Completion, Episode, FinishReason, Segment
from gem_core.episodes.rollout import Request, play
from gem_core.errors import GemError
from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe
from gem_core.training.runs import current_run
from gem_core.training.tasks import MachineFactory, Task, eval_task, train_task


class EnginePolicy:
    """A `gem_core.episodes.rollout.Policy` over OpenRLHF's engine; ``params`` are never changed."""

    def __init__(self, engine: Any, params: Any, stop_ids: list[int], top_k: int = -1) -> None:
        self.engine, self.params = engine, deepcopy(params)
        self.params.stop_token_ids, self.params.top_k = list(stop_ids), top_k
        self.params.min_tokens = 0  # OpenRLHF's 1 forbids an empty action
        self.params.__post_init__()  # vLLM derives its set of stop ids there

    async def complete(self, request: Request) -> Completion:
        """Sample one action of at most ``request.max_tokens`` tokens."""
        params = deepcopy(self.params)
        params.max_tokens = request.max_tokens
        found = (await self.engine.generate(request.prompt_ids, params)).outputs[0]
        ids, tables = [int(token) for token in found.token_ids], found.logprobs
        logprobs = tables and [table[i].logprob for i, table in zip(ids, tables, strict=True)]
        return Completion(ids, logprobs, FinishReason(found.finish_reason))


class GemAgentExecutor(AgentExecutorBase):
    """Plays one episode per call; OpenRLHF makes one instance per engine, without arguments."""

    def __init__(self, recipe: Recipe | None = None) -> None:
        self.recipe = recipe or current_run().recipe
        self._factory: MachineFactory | None = None
        self._members: Counter[int] = Counter()

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Play the task of a dataset row, see `dataset_rows`.

        ``hf_tokenizer`` is None in a run: OpenRLHF would pickle it for every prompt.
        """
        if self._factory is None:
            limits = self.recipe.limits
            room = replace(limits, max_context_tokens=limits.max_context_tokens or max_length)
            tokenizer = hf_tokenizer or AutoTokenizer.from_pretrained(model_path(self.recipe))
            self._factory = MachineFactory(replace(self.recipe, limits=room), tokenizer)
        machine = self._factory(self._task(label))
        stops, top_k = self._factory.stop_ids, self.recipe.sampling.top_k
        episode = await play(machine, EnginePolicy(llm_engine, sampling_params, stops, top_k))
        return to_native(episode, machine.bootstrap_state(), sampling_params.logprobs is not None)

    def _task(self, label: str) -> Task:
        """The members of a group come as calls with one label, all of them to one engine."""
        split, _, number = label.partition("/")
        first = int(number)
        if split == "eval":
            return eval_task(self.recipe, first)
        member = self._members[first]
        self._members[first] = (member + 1) % self.recipe.batch.group_size
        return train_task(self.recipe, first + member)


AgentExecutor = GemAgentExecutor  # the name OpenRLHF looks for


def dataset_rows(recipe: Recipe, split: str) -> list[dict[str, str]]:
    """OpenRLHF's prompt dataset: one row per group (``train``) or held-out episode (``eval``).

    The label is ``split/<index of the first task>``. Prompts come from the environment; ``input``
    only tells a reader of the file what is played.
    """
    if split == "eval":
        tasks = [eval_task(recipe, index) for index in range(recipe.eval.inside_episodes)]
    else:
        count, size = recipe.train.steps * recipe.batch.episodes, recipe.batch.group_size
        tasks = [train_task(recipe, index) for index in range(0, count, size)]
    return [
        {"input": f"{recipe.env[t.env].id} seed {t.seed}", "label": f"{split}/{t.index}"}
        for t in tasks
    ]


def to_native(
    episode: Episode, state: list[int] | None = None, logprobs: bool = False
) -> dict[str, Any]:
    """What OpenRLHF's SamplesGenerator turns into an Experience.

    The episode itself travels in ``label``, beside the state it was cut off in. ``reward`` stays
    None on purpose: a trainer without this adapter's experience maker then stops
    ("reward_model_group is required") instead of training on a sum of turn rewards.
    """
    if len(episode.segments) > 1:
        raise GemError("OpenRLHF trains one sequence per episode; set context.history to 'append'.")
    segment = episode.segments[0] if episode.segments else Segment()
    if logprobs and segment.logprobs is None:
        raise GemError("The importance correction needs the engine's log-probabilities.")
    filler = [0] * max(0, 2 - len(segment.token_ids))  # an Experience has at least two tokens
    cut = bool(episode.turns) and episode.turns[-1].finish_reason is FinishReason.LENGTH
    return {
        "prompt": episode.env_id,
        "label": (episode, state or []),
        "reward": None,
        "observation_tokens": [*segment.token_ids, *filler],
        "action_ranges": [(s, e) for _, s, e in segment.spans if all(segment.loss_mask[s:e])],
        "rollout_log_probs": [*(segment.logprobs or []), *filler] if logprobs else None,
        "truncated": cut,
        "extra_logs": {},
    }
