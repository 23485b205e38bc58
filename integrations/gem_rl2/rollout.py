"""Episodes through RL2's engine, and from episodes to the token lists that RL2 trains on.

RL2's own coroutines tokenise the text of each turn again and know no limit but a number of turns;
here token ids go in and come out. Both APIs ask for one episode at a time, all at once.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from RL2.datasets import pack_tensor_dicts

from gem_adapters.request_seeds import sglang_seed
from gem_adapters.run_log import log_evaluation
from gem_adapters.support import SUPPORT
from gem_adapters.token_rows import token_rewards
from gem_adapters.versions import VERSION, name_missing, pick_version
from gem_core.episodes.data import Completion, Episode, Segment, Support
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play, require_healthy
from gem_core.errors import GemError
from gem_core.policies.completions import to_completion
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory, Task

TRIES = 120
PAUSE_S = 1.0
"""How often a request is sent, and the seconds between. 0.0.2 waits neither for the router to
accept connections nor for its engines to be ready (503), and its own client tries for ever."""
TRY_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses of a router that is full, has no engine ready, or lost the engine it had chosen."""


class EnginePolicy:
    """RL2's engine: token ids in, token ids out, nothing is tokenised twice.

    Args:
        session: for the requests.
        url: of the router in front of sglang.
        sampling: sampling parameters that do not change.
        stop_ids: ids that end a turn.
        over_drawn: whether the engine reports which tokens could be drawn; that of a CPU can.
        recipe: the experiment, where old weights may sample.

    Attributes:
        retried: requests that were sent again.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        sampling: Mapping[str, Any],
        stop_ids: Sequence[int],
        over_drawn: bool = False,
        recipe: Recipe | None = None,
    ) -> None:
        self.session = session
        self.recipe = recipe
        self.url = f"{url}/generate"
        self.stop_ids = stop_ids
        self.over_drawn = over_drawn
        self.retried = 0
        self.sampling = {**sampling, "no_stop_trim": True, "stop_token_ids": list(stop_ids)}

    async def complete(self, request: Request) -> Completion:
        """Sample one completion, see `gem_core.episodes.rollout.Policy`.

        Raises:
            GemError: no engine answers, or it answers with an error.
        """
        body = {
            "input_ids": request.prompt_ids,
            "sampling_params": {
                **self.sampling,
                "max_new_tokens": request.max_tokens,
                **sglang_seed(request.seed),
            },
            "return_logprob": True,
            **({SUPPORT: True} if self.over_drawn else {}),
        }
        version = self.recipe and pick_version(self.recipe, request.machine)
        if version is not None:
            body[VERSION] = version
        meta = (await self._post(body))["meta_info"]
        sampled = meta["output_token_logprobs"]  # (log-probability, token id, text) per token
        completion = to_completion(
            token_ids=[entry[1] for entry in sampled],
            logprobs=[entry[0] for entry in sampled],
            finish_reason=meta["finish_reason"]["type"],
            stop_ids=self.stop_ids,
            max_tokens=request.max_tokens,
        )
        if self.over_drawn:
            completion.support = _read_support(meta) if completion.token_ids else []
        if version is not None:
            completion.version = meta[VERSION]
        return completion

    async def _post(self, body: dict[str, Any]) -> Any:
        """Return the answer; the request is repeated where another try can help."""
        problem = ""
        for _ in range(TRIES):
            try:
                async with self.session.post(self.url, json=body) as response:
                    if response.status == 200:
                        return await response.json(content_type=None)
                    text = (await response.text())[:500]
                    problem = f"{response.status}: {text}"
                    if response.status not in TRY_AGAIN:
                        raise GemError(f"RL2's engine answered {problem}")
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
                problem = f"{type(error).__name__}: {error}"
            self.retried += 1
            await asyncio.sleep(PAUSE_S)
        raise GemError(
            f"No engine answers at {self.url} ({problem}): read the log for why it did not start, "
            "or why it ended."
        )


def _read_support(meta: Mapping[str, Any]) -> Support | None:
    """Return the sets in an answer; None where the engine reports none."""
    sets = meta.get(SUPPORT)
    return sets and [None if ids is None else array("i", ids) for ids in sets]


class EpisodePlayer:
    """Plays episodes of a run, on rank 0, and keeps them until they are asked for.

    Attributes:
        version: of the weights that the engines have, see `gem_adapters.versions`.
    """

    version = 0

    def __init__(self, run: RunDir, tokenizer: Any) -> None:
        self.run = run
        self.recipe = run.recipe
        self.factory = MachineFactory(self.recipe, tokenizer)
        self.played: dict[int, Episode] = {}

    async def play(self, task: Task, url: str, sampling: Mapping[str, Any]) -> EpisodeMachine:
        """Play ``task`` with the engine at ``url``; the machine has the episode."""
        machine = self.factory(task)
        unlimited = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=unlimited) as session:
            drawn = self.recipe.sampling.support == "drawn"
            stop_ids = self.factory.stop_ids
            policy = EnginePolicy(session, url, sampling, stop_ids, drawn, self.recipe)
            episode = await play(machine, policy)
        name_missing([episode], self.version)
        self.played[task.index] = episode
        return machine

    def take(self) -> list[Episode]:
        """The episodes since the last call, in the order of their tasks.

        Raises:
            GemError: more than half of them broke.
        """
        episodes = [self.played[index] for index in sorted(self.played)]
        self.played.clear()
        require_healthy(episodes)
        return episodes

    def log_eval(self, step: int) -> None:
        """Write the evaluation after training step ``step``: what was played since then."""
        log_evaluation(self.run, step, self.take())

    def pack(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """RL2's own function, which raises IndexError where there is nothing to pack.

        Raises:
            GemError: no episode has anything to train on.
        """
        if not rows:
            episodes = self.take()
            reasons = sorted({episode.stop_reason.value for episode in episodes})
            raise GemError(
                f"None of the {len(episodes)} episodes has a token to train on (they ended by "
                f"{reasons}): raise limits.max_context_tokens, or repair the environment."
            )
        return pack_tensor_dicts(rows)


PLAYERS: list[EpisodePlayer] = []
"""The one player of this process, where RL2 calls for episodes itself (newer API)."""


def to_native(episode: Episode, final: Sequence[int] = ()) -> list[dict[str, list[Any]]]:
    """The token lists that RL2 calls a state dict, one per sequence with something to train on.

    Sequences without a trained token are left out: RL2 needs no fixed number of them, and its mean
    over sequences would count them.

    Args:
        episode: a finished episode.
        final: ids of the state in which a limit cut the episode, see
            `EpisodeMachine.bootstrap_state`; for a critic it is one more sequence, without actions.

    Returns:
        ``states``, ``actions``, ``action_mask``, ``logps`` and ``rewards`` per sequence, and
        `SUPPORT` where the engine reported it, one entry per token; the reward of a turn is on its
        last token.

    Raises:
        GemError: an action has no token before it, which RL2 and its turns need.
    """
    sequences = [_state_dict(episode, s) for s in episode.segments if any(s.loss_mask)]
    if sequences and final:
        ids = [*final, 0]  # RL2 cuts the last token off
        sequences.append(_state_dict(episode, Segment(ids, loss_mask=[0] * len(ids))))
    return sequences


def _state_dict(episode: Episode, segment: Segment) -> dict[str, list[Any]]:
    if segment.loss_mask[0]:
        raise GemError("An episode begins with an action: RL2 cannot train on the first token.")
    return {
        "states": segment.token_ids,
        "actions": segment.token_ids,  # read where the mask is 1
        "action_mask": segment.loss_mask,
        "logps": segment.logprobs or [0.0] * len(segment.token_ids),
        "rewards": token_rewards(episode, segment),
        **({SUPPORT: segment.support} if segment.support is not None else {}),
    }
