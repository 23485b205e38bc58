"""Episodes through RL2's engine, and from episodes to RL2's tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import aiohttp
import torch
from RL2.datasets import get_tensor_dict, pack_tensor_dicts

from gem_core.episode import Completion, Episode, FinishReason, Segment
from gem_core.errors import GemError
from gem_core.machine import EpisodeMachine
from gem_core.rollout import Request, play_many, require_healthy

CONNECT_TRIES = 120
"""Seconds that the router may take to accept connections."""
Post = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
TensorDict = dict[str, torch.Tensor]


class EnginePolicy:
    """RL2's engine: token ids in, token ids out, nothing is tokenised twice.

    Args:
        post: sends a body to sglang's ``/generate`` and returns its answer.
        sampling: sampling parameters that do not change.
        stop_ids: ids that end a turn.
    """

    def __init__(self, post: Post, sampling: dict[str, Any], stop_ids: Sequence[int]) -> None:
        self.post = post
        self.sampling = {**sampling, "no_stop_trim": True, "stop_token_ids": list(stop_ids)}

    async def complete(self, request: Request) -> Completion:
        """See :class:`gem_core.rollout.Policy`."""
        sampling = {**self.sampling, "max_new_tokens": request.max_tokens}
        body = {"input_ids": request.prompt_ids, "sampling_params": sampling}
        meta = (await self.post({**body, "return_logprob": True}))["meta_info"]
        pairs = meta["output_token_logprobs"]
        reason = FinishReason(meta["finish_reason"]["type"])
        return Completion([int(p[1]) for p in pairs], [float(p[0]) for p in pairs], reason)


async def post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request, waiting for the router to come up (0.0.2 does not wait for it).

    Raises:
        GemError: nothing answers, or with an error.
    """
    for _ in range(CONNECT_TRIES):
        try:
            async with session.post(f"{url}/generate", json=body) as response:
                if response.status != 200:
                    text = (await response.text())[:500]
                    raise GemError(f"RL2's engine answered {response.status}: {text}")
                answer: dict[str, Any] = await response.json(content_type=None)
                return answer
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(1)
    raise GemError(f"No engine answers at {url}: read the log for why it did not start.")


async def play(
    machines: Sequence[EpisodeMachine], url: str, sampling: dict[str, Any], stop_ids: Sequence[int]
) -> list[Episode]:
    """Play ``machines`` with the engine at ``url``; results in the same order.

    Raises:
        GemError: more than half of the episodes broke, or the engine is at fault.
    """
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        policy = EnginePolicy(partial(post, session, url), sampling, stop_ids)
        episodes = await play_many(machines, policy)
    require_healthy(episodes)
    return episodes


def to_state_dicts(episode: Episode) -> list[dict[str, list[Any]]]:
    """The token lists that RL2 calls a state dict, one per sequence with something to train on.

    A turn's reward is on its last token. Sequences without a trained token are left out: RL2 needs
    no fixed number of them, and its mean over sequences would count them.
    """
    return [_state_dict(episode, s) for s in episode.segments if any(s.loss_mask)]


def _state_dict(episode: Episode, segment: Segment) -> dict[str, list[Any]]:
    if segment.loss_mask[0]:
        raise GemError("An episode begins with an action: RL2 cannot train on the first token.")
    rewards = [0.0] * len(segment.token_ids)
    for turn, _, end in segment.spans:
        if not episode.turns[turn].aborted:
            rewards[end - 1] = episode.turns[turn].reward
    return {
        "states": segment.token_ids,
        "actions": segment.token_ids,  # read where the mask is 1
        "action_mask": segment.loss_mask,
        "logps": segment.logprobs or [0.0] * len(segment.token_ids),
        "rewards": rewards,
    }


def to_tensor_dict(state: dict[str, list[Any]]) -> TensorDict:
    """One sequence as RL2 trains on it: position ``p`` holds token ``p`` and predicts ``p + 1``."""
    tensors = get_tensor_dict(state["states"], state["actions"], state["action_mask"])
    tensors["llm_logps"] = torch.FloatTensor(state["logps"][1:])
    tensors["rewards"] = torch.FloatTensor(state["rewards"][1:])
    return tensors


def final_state(machine: EpisodeMachine) -> list[int]:
    """Ids of the state in which an episode was cut off from outside, for the critic to value.

    Empty for other ends, and where the state does not fit the context.
    """
    episode, limit = machine.episode, machine.limits.max_context_tokens
    if not episode.stop_reason.truncated or not episode.turns or machine.context.tokenizer is None:
        return []
    last = episode.turns[-1]
    closed = last.finish_reason is FinishReason.STOP
    text, fresh = machine.context.extend(last.action, closed, episode.final_observation, last.info)
    ids = [] if fresh else episode.segments[-1].token_ids
    ids = ids + machine.context.tokenizer.encode(text)
    return ids if limit is None or len(ids) <= limit else []


def pack(
    episodes: Sequence[Episode], finals: Sequence[list[int]] | None = None
) -> tuple[TensorDict, torch.Tensor]:
    """RL2's batch: tensors [sequences, tokens] and the first sequence of each episode, [E + 1].

    Args:
        episodes: the episodes of a step.
        finals: :func:`final_state` of each where a critic is to read it: one more sequence, on
            which nothing is trained. ``final_mask`` then marks the position to read.

    Raises:
        GemError: no episode has anything to train on (RL2 0.0.2 dies of an IndexError there).
    """
    rows = [[to_tensor_dict(s) for s in to_state_dicts(episode)] for episode in episodes]
    if not any(rows):
        reasons = sorted({episode.stop_reason.value for episode in episodes})
        raise GemError(
            f"None of the {len(episodes)} episodes has a token to train on (they ended by "
            f"{reasons}): raise limits.max_context_tokens, or repair the environment."
        )
    for part, ids in zip(rows, finals or [], strict=False):
        for row in part:
            row["final_mask"] = torch.zeros_like(row["states"])
        if part and ids:
            ids = [*ids, ids[-1]]  # RL2 cuts the last token off
            blank = {key: [0] * len(ids) for key in ("action_mask", "logps", "rewards")}
            row = to_tensor_dict({"states": ids, "actions": ids, **blank})
            row["final_mask"] = row["eos_mask"].clone()
            part.append(row)
    counts = torch.tensor([0, *map(len, rows)])
    return pack_tensor_dicts([row for part in rows for row in part]), counts.cumsum(0)
