"""The check of the scripted players of an environment."""

from __future__ import annotations

from gem_core.env.checker.subject import Subject, shown
from gem_core.env.interface import Env
from gem_core.errors import UnknownNameError, is_interruption

_TURNS = 200
"""Turns of an episode; a player that goes on longer has not raised."""


def check_players(subject: Subject) -> None:
    """No scripted player of the environment raises."""
    from gem_core.envs.players import player_names  # of a layer above

    env = subject.make()
    env_id = "" if env.spec is None else env.spec.id
    for name in player_names(env_id, env)[1:]:  # the first plays random actions, as other checks do
        results = [_success(subject, env, env_id, name, seed) for seed in subject.seeds]
        if name == "expert" and set(results) == {False}:
            subject.noted.append(f"the expert succeeded in none of {len(results)} episodes")


def _success(subject: Subject, env: Env, env_id: str, name: str, seed: int) -> bool | None:
    """Return whether a player's episode succeeded; ``None``: it did not end, or nobody played."""
    from gem_core.envs.players import Peek, get_player
    from gem_core.envs.players.tool_users import MissingToolError

    player, turn = None, 0
    obs, info = env.reset(seed=seed)
    try:
        player = get_player(name, env_id, seed, env=env)
        player.reset(obs, info)
        while turn < _TURNS:
            turn += 1
            obs, _, terminated, truncated, info = env.step(player.act(obs, info))
            if terminated or truncated:
                return bool(info.get("success"))
    except BaseException as error:
        if is_interruption(error):
            raise
        no_answer = isinstance(error, NotImplementedError) and isinstance(player, Peek)
        no_expert = isinstance(error, UnknownNameError) and player is None
        if not (no_answer or no_expert or isinstance(error, MissingToolError)):
            who = f"the player {name!r}, seed {seed}, turn {turn}"
            raise subject.fail(f"{who}, raised {shown(error)}") from error
    return None
