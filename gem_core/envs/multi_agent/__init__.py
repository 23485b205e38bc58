"""Environments with two agents, and with a simulated user."""

from __future__ import annotations

from gem_core.envs.multi_agent.base import AgainstOpponent, MultiAgentEnv, Opponent
from gem_core.envs.multi_agent.dialogue import ReturnsDesk, ScriptedUser, UserReply, UserSimulator
from gem_core.envs.multi_agent.games import Nim, TicTacToe

__all__ = [
    "AgainstOpponent",
    "MultiAgentEnv",
    "Nim",
    "Opponent",
    "ReturnsDesk",
    "ScriptedUser",
    "TicTacToe",
    "UserReply",
    "UserSimulator",
]
