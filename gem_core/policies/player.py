"""A scripted player as a policy."""

from __future__ import annotations

from gem_core.envs.players import Player, get_player
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request


class PlayerPolicy:
    """Lets a scripted player act; it implements `gem_core.episodes.rollout.Policy`.

    A sample of a task is played by a player with a seed of its own; ``kind`` is that of
    `gem_core.envs.players.get_player`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._players: dict[int, Player] = {}

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`."""
        machine = request.machine
        observation, info = machine.shown
        if machine.turn == 0:
            player = get_player(self.kind, machine.env_id, seed=request.seed, env=machine.env)
            player.reset(observation, info)
            self._players[machine.index] = player
        action = self._players[machine.index].act(observation, info)
        return Completion([], text=action)

    def finish(self, item: int) -> None:
        """See `gem_core.evaluation.runner.ItemPolicy`."""
        self._players.pop(item, None)

    async def close(self) -> None:
        """Do nothing: players hold nothing open."""
