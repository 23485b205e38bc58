"""Each turn's reward is on that turn's tokens in the real package, however the episode ends."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.env.interface import Env
from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, FinishReason, StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import play_batch
from gem_parity.frozen import _TEMPLATE, STOP_ID, _Bytes
from gem_parity.replays import load_replay

ENDS = {
    "terminated": (Limits(), StopReason.TERMINATED),
    "timed out": (Limits(), StopReason.TRUNCATED_TURNS),
    "turn limit": (Limits(max_turns=3), StopReason.TRUNCATED_TURNS),
    "episode budget": (Limits(max_episode_tokens=24), StopReason.TRUNCATED_TOKENS),
    "full context": (Limits(max_context_tokens=24), StopReason.CONTEXT_OVERFLOW),
}
"""What ends an episode after three turns."""


class Counting(Env):
    """Pays 1, 2, 3, ...; its third step may be the last."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def _reset(self, options):
        self.turn = 0
        return "obs:", {}

    def _step(self, action):
        self.turn += 1
        last = self.turn == 3
        ends = (last and self.end == "terminated", last and self.end == "timed out")
        return "obs:", float(self.turn), *ends, {}


class Fixed:
    """Answers with three tokens that depend on the episode, and a stop token."""

    def complete_batch(self, requests):
        return [
            Completion([10 + r.machine.index, 9, 8, STOP_ID], [-1.0] * 4, FinishReason.STOP)
            for r in requests
        ]


def machine(number):
    end = list(ENDS)[number % len(ENDS)]
    return EpisodeMachine(
        Counting(end),
        Context(_TEMPLATE, _Bytes()),
        ENDS[end][0],
        seed=0,
        group=number,
        index=number,
        env_id="counting",
    )


@pytest.fixture
def episodes():
    return play_batch([machine(number) for number in range(10)], Fixed())


def test_the_episodes_end_in_every_way_after_three_turns(episodes):
    reasons = [reason for _, reason in ENDS.values()] * 2
    assert [episode.stop_reason for episode in episodes] == reasons
    for episode, end in zip(episodes, list(ENDS) * 2, strict=True):
        found = episode.rewards
        assert found == [1.0, 2.0, 3.0], f"{end}: turns 1, 2, 3 have the rewards {found}"


def test_rewards_1_2_3_are_on_the_tokens_of_turns_1_2_3(package, tiny, model_dir, episodes):
    """With gamma 0, a turn's advantage is its own reward."""
    keys = ("algorithm.estimator=reinforce", "algorithm.gamma=0", "algorithm.epochs=1")
    recipe = tiny(*keys, "batch.episodes=10", "batch.group_size=1")
    replayed = load_replay(package.removeprefix("gem_")).replay(recipe, episodes, model_dir)
    rows = {tuple(row.token_ids): row for row in replayed.rows}
    assert len(rows) == len(episodes)
    for episode, end in zip(episodes, list(ENDS) * 2, strict=True):
        (segment,) = episode.segments
        row = rows[tuple(segment.token_ids)]
        expected = np.zeros(len(segment.token_ids))
        for turn, first, behind in segment.spans:
            expected[first:behind] = turn + 1
        found = [float(row.advantages[first]) for _, first, _ in segment.spans]
        assert found == [1.0, 2.0, 3.0], f"{end}: rewards 1, 2, 3 arrived as {found}"
        assert row.advantages.tolist() == expected.tolist(), end
