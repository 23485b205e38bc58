"""Episodes for RL2's newer API: one call of ``generate`` plays one episode into one sample."""

from __future__ import annotations

import itertools
import os
from typing import Any

from omegaconf import OmegaConf
from RL2.utils.communication import async_request

from gem_core.episode import Episode
from gem_core.rollout import play
from gem_core.runs import RunDir
from gem_core.tasks import MachineFactory
from gem_rl2.rollout import EnginePolicy, to_state_dicts


class Player:
    """What the calls of ``generate`` share.

    RL2 starts the samples of a step in order and does not tell which step it is: episodes are
    counted, from ``begin`` on.

    Attributes:
        episodes: training episodes since they were last taken, in the order they began.
    """

    def __init__(self, run: RunDir, tokenizer: Any) -> None:
        self.factory = MachineFactory(run.recipe, tokenizer)
        self.episodes: dict[int, Episode] = {}
        self.begin(0)

    def begin(self, step: int) -> None:
        """The next training episode is the first of 0-based ``step``."""
        self.next_index = itertools.count(step * self.factory.recipe.batch.episodes)
        self.next_held_out = itertools.count()

    async def play(self, config: Any, url: str, sample: Any) -> None:
        """Play the next episode, held-out ones for RL2's test configuration."""
        sampling = OmegaConf.to_container(config.sampling_params)
        policy = EnginePolicy(
            lambda body: async_request(url, "generate", json=body), sampling, self.factory.stop_ids
        )
        if "dynamic_filtering" not in config:  # a key of the training configuration alone
            index = next(self.next_held_out) % self.factory.recipe.eval.inside_episodes
            fill(sample, await play(self.factory.held_out(index), policy))
            return
        index = next(self.next_index)
        self.episodes[index] = await play(self.factory.train(index), policy)
        fill(sample, self.episodes[index])

    def take(self) -> list[Episode]:
        """The training episodes since the last call."""
        taken = [self.episodes[index] for index in sorted(self.episodes)]
        self.episodes.clear()
        return taken


PLAYERS: list[Player] = []
"""The one player of this process, made by the first call."""


async def generate(config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
    """RL2's hook; see :class:`Player`."""
    if not PLAYERS:
        PLAYERS.append(Player(RunDir(os.environ["GEM_RL2_RUN"]), tokenizer))
    await PLAYERS[0].play(config, router_url, sample)


def fill(sample: Any, episode: Episode) -> None:
    """Write an episode into RL2's ``Sample``; its own sum of rewards misses all turns but one."""
    sample.state_dicts = to_state_dicts(episode)
    sample.turn = len(episode.turns)
    sample.status = type(sample).Status.DONE
    sample.sample = {**sample.sample, "index": episode.index, "seed": episode.seed}
    sample.metrics["turns"].append(sample.turn)
    sample.metrics["rewards"].append(episode.total_reward)
    sample.metrics["response_length"].append(episode.action_tokens)
    if episode.turns:
        sample.state_text, sample.action_text = (
            episode.turns[-1].observation,
            episode.turns[-1].action,
        )
