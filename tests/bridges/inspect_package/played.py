"""Episodes that gem-core plays directly, and what is read of a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inspect_ai.log import EvalLog

import gem_core
from gem_core.envs.players import get_player
from gem_core.episodes.context import with_suffix

Evaluate = Callable[..., EvalLog]
WATCHED = "own_tasks:Watched"


@dataclass
class Played:
    """An episode that gem-core played directly."""

    shown: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    success: bool = False


def play(
    game: str, seed: int, choose: Callable[[str, dict[str, Any]], str], **kwargs: Any
) -> Played:
    env, played, over = gem_core.make(game, **kwargs), Played(), False
    observation, info = env.reset(seed=seed)
    while not over:
        played.shown.append(with_suffix(observation, info))
        played.actions.append(choose(observation, info))
        observation, reward, terminated, truncated, info = env.step(played.actions[-1])
        played.rewards.append(reward)
        over = terminated or truncated
    played.success = info["success"]
    played.shown.append(with_suffix(observation, info))
    return played


def play_expert(game: str, seed: int) -> Played:
    env = gem_core.make(game)
    player = get_player("expert", game, seed=0, env=env)
    player.reset(*env.reset(seed=seed))
    return play(game, seed, player.act)


def repeat(episodes: list[Played]) -> Callable[[list[str]], str]:
    """The answers of recorded episodes, found by what was shown and answered before."""

    def answer(texts: list[str]) -> str:
        turn = len(texts) // 2
        (action, *others) = {
            episode.actions[turn]
            for episode in episodes
            if texts[0::2] == episode.shown[: turn + 1] and texts[1::2] == episode.actions[:turn]
        }
        assert not others
        return action

    return answer


def count_up(texts: list[str]) -> str:
    """The right answer in `own_tasks.Watched`."""
    return str(int(texts[-1].split("?")[0].split()[-1]) + 1)


def metric(log: EvalLog, name: str, kind: str = "mean") -> float:
    assert log.results is not None
    (found,) = [score for score in log.results.scores if score.name == name]
    return found.metrics[kind].value


def scores(sample: Any) -> dict[str, Any]:
    return {name: score.value for name, score in sample.scores.items()}
