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
from gem_adapters.support import SUPPORT
from gem_adapters.versions import VERSION, pick_version
from gem_core.episodes.data import Completion, Episode, FinishReason, Segment
from gem_core.episodes.rollout import Request, play
from gem_core.errors import GemError
from gem_core.policies.completions import vllm_completion
from gem_core.runs.directory.run_dir import current_run
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory, Task, eval_task, train_task
from gem_core.training.tiny import model_source


class EnginePolicy:
    """A `gem_core.episodes.rollout.Policy` over OpenRLHF's engine.

    Args:
        engine: OpenRLHF's rollout actor.
        params: vLLM's SamplingParams of the request; never changed.
        stop_ids: token ids that end a turn.
        top_k: as in vLLM; -1 is off.
        over_drawn: whether the engine reports which tokens could be drawn; that of a CPU can.
        recipe: the experiment, where old weights may sample.
    """

    def __init__(
        self,
        engine: Any,
        params: Any,
        stop_ids: list[int],
        top_k: int = -1,
        *,
        over_drawn: bool = False,
        recipe: Recipe | None = None,
    ) -> None:
        self.engine = engine
        self.recipe = recipe
        self.stop_ids = list(stop_ids)
        self.over_drawn = over_drawn
        self.params = deepcopy(params)
        self.params.stop_token_ids = list(stop_ids)
        self.params.top_k = top_k
        self.params.logprobs = 1  # also where OpenRLHF's loss does not need them
        self.params.min_tokens = 0  # OpenRLHF's 1 forbids an empty action
        self.extra: dict[str, Any] = {SUPPORT: True} if over_drawn else {}
        self.params.__post_init__()  # vLLM derives its set of stop ids there

    async def complete(self, request: Request) -> Completion:
        """Sample one action of at most ``request.max_tokens`` tokens."""
        params = deepcopy(self.params)
        params.max_tokens = request.max_tokens
        params.seed = request.seed
        wanted = self._wanted(request)
        extra = self.extra if wanted is None else {**self.extra, VERSION: wanted}
        if extra:
            params.extra_args = extra
        # Before the request: an update in between would be a later one. A stock actor has none.
        version = getattr(self.engine, "weights_version", None)
        output = await self.engine.generate(request.prompt_ids, params)
        answer = output.outputs[0]
        completion = vllm_completion(answer, self.stop_ids, request.max_tokens)
        if self.over_drawn:
            completion.support = answer.support if completion.token_ids else []
        completion.version = version if wanted is None else answer.version
        return completion

    def _wanted(self, request: Request) -> int | None:
        """Return the version of the weights that must sample; ``None``: the newest."""
        if self.recipe is None or not self.recipe.sampling.staleness:
            return None
        if request.machine.split == "eval":
            evaluated: int | None = self.engine.evaluated
            return evaluated
        return pick_version(self.recipe, request.machine)


class GemAgentExecutor(AgentExecutorBase):
    """Plays one episode per call; OpenRLHF makes one instance per engine, without arguments.

    Args:
        recipe: the experiment; None reads it from the run directory of this process.
    """

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
            self._factory = self._make_factory(hf_tokenizer, max_length)
        machine = self._factory(self._task(label))
        sampling = self.recipe.sampling
        policy = EnginePolicy(
            llm_engine,
            sampling_params,
            self._factory.stop_ids,
            sampling.top_k,
            over_drawn=sampling.support == "drawn",
            recipe=self.recipe,
        )
        episode = await play(machine, policy)
        return to_native(episode, machine.bootstrap_state())

    def _make_factory(self, tokenizer: Any, max_length: int) -> MachineFactory:
        """Return the factory of machines whose context is at most the engine's."""
        limits = self.recipe.limits
        context = limits.max_context_tokens or max_length
        recipe = replace(self.recipe, limits=replace(limits, max_context_tokens=context))
        if tokenizer is None:
            tokenizer = AutoTokenizer.from_pretrained(model_source(self.recipe))
        return MachineFactory(recipe, tokenizer)

    def _task(self, label: str) -> Task:
        """Return the task of a label; the members of a group are calls with one label.

        All of these calls go to one engine, so the count here is that of the group.
        """
        split, _, number = label.partition("/")
        first_index = int(number)
        if split == "eval":
            return eval_task(self.recipe, first_index)
        member = self._members[first_index]
        self._members[first_index] = (member + 1) % self.recipe.batch.group_size
        return train_task(self.recipe, first_index + member)


AgentExecutor = GemAgentExecutor  # the name OpenRLHF looks for


def dataset_rows(recipe: Recipe, split: str) -> list[dict[str, str]]:
    """Return OpenRLHF's prompts: one row per group (``train``) or evaluation episode (``eval``).

    The label is ``split/<index of the first task>``. Prompts come from the environment; ``input``
    only tells a reader of the file what is played.
    """
    if split == "eval":
        tasks = [eval_task(recipe, index) for index in range(recipe.eval.inside_episodes)]
    else:
        count = recipe.train.steps * recipe.batch.episodes
        tasks = [train_task(recipe, index) for index in range(0, count, recipe.batch.group_size)]
    return [
        {
            "input": f"{recipe.envs(task.split)[task.env].id} seed {task.seed}",
            "label": f"{split}/{task.index}",
        }
        for task in tasks
    ]


NO_ROW = -1
"""Number of the row of a sample on which nothing is trained."""


def to_native(
    episode: Episode, bootstrap_state: list[int] | None = None, number: int = 0
) -> dict[str, Any]:
    """Convert a row to what OpenRLHF's SamplesGenerator turns into an Experience.

    The episode itself travels in ``label``, beside the state it was cut off in and the number of
    the row. ``reward`` stays None on purpose: a trainer without this adapter's experience maker
    then stops ("reward_model_group is required") instead of training on a sum of turn rewards.

    Args:
        episode: a finished episode. OpenRLHF asks for one sample of it, its first row; where it has
            several, the experience maker makes the others (`gem_openrlhf.rows`).
        bootstrap_state: ids of the state in which a limit cut it; None or empty for other ends.
        number: segment of the episode, or `NO_ROW`.

    Raises:
        GemError: the row has no log-probabilities.
    """
    has_tokens = bool(episode.segments) and number != NO_ROW
    segment = episode.segments[number] if has_tokens else Segment()
    filler = [0] * max(0, 2 - len(segment.token_ids))  # an Experience has at least two tokens
    if segment.logprobs is None:
        raise GemError(
            "The engine's log-probabilities of an episode are missing; every token's is recorded. "
            "Install a tested version of the engine (`gem-core doctor`)."
        )
    logprobs = [*segment.logprobs, *filler]
    trained_spans = [
        (start, end) for _, start, end in segment.spans if all(segment.loss_mask[start:end])
    ]
    last_turn_cut = bool(episode.turns) and episode.turns[-1].finish_reason is FinishReason.LENGTH
    return {
        "prompt": episode.env_id,
        "label": (episode, bootstrap_state or [], number),
        "reward": None,
        "observation_tokens": [*segment.token_ids, *filler],
        "action_ranges": trained_spans,
        "rollout_log_probs": logprobs,
        "truncated": last_turn_cut,
        "extra_logs": {},
    }
