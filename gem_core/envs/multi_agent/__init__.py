"""Environments with several agents, and with a simulated user."""

from __future__ import annotations

from .base import AgainstOpponent, MultiAgentEnv, Opponent
from .dialogue import ReturnsDesk, ScriptedUser, UserReply, UserSimulator
from .games import Nim, TicTacToe

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
