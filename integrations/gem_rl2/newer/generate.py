"""The file for ``rollout.env_path`` of RL2's newer API, which calls ``generate`` for each sample.

RL2 runs this file as a module of its own. It starts the samples of a step in order and does not
tell which step it is: they are counted.
"""

from __future__ import annotations

import itertools
from typing import Any

from omegaconf import OmegaConf

from gem_adapters.estimate import needs_critic
from gem_core.episodes.machine import EpisodeMachine
from gem_core.runs.tasks import eval_task, train_task
from gem_rl2.rollout import PLAYERS, to_native

TRAINED = itertools.count()
EVALUATED = itertools.count()


async def generate(config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
    """RL2's hook: play the next episode, one of the evaluation for RL2's test configuration."""
    (player,) = PLAYERS
    recipe = player.recipe
    sampling: Any = OmegaConf.to_container(config.sampling_params)
    if "dynamic_filtering" in config:  # a key of the training configuration alone
        task = train_task(recipe, next(TRAINED))
        machine = await player.play(task, router_url, sampling)
        fill(sample, machine, valued=needs_critic(recipe))
        return
    evaluation, index = divmod(next(EVALUATED), recipe.eval.inside_episodes)
    fill(sample, await player.play(eval_task(recipe, index), router_url, sampling))
    if len(player.played) == recipe.eval.inside_episodes:
        player.log_eval((evaluation + 1) * recipe.eval.every)


def fill(sample: Any, machine: EpisodeMachine, *, valued: bool = False) -> None:
    """Write an episode into RL2's ``Sample``; its own sum of rewards misses all turns but one.

    Args:
        sample: RL2's.
        machine: has played the episode.
        valued: whether a critic values the state in which a limit cut the episode.
    """
    episode = machine.episode
    sample.state_dicts = to_native(episode, machine.bootstrap_state() if valued else ())
    sample.turn = len(episode.turns)
    sample.status = type(sample).Status.DONE
    sample.sample = {**sample.sample, "index": episode.index, "seed": episode.seed}
    sample.metrics["turns"].append(sample.turn)
    sample.metrics["rewards"].append(episode.total_reward)
    sample.metrics["response_length"].append(episode.action_tokens)
    if episode.turns:
        last = episode.turns[-1]
        sample.state_text = last.observation
        sample.action_text = last.action
