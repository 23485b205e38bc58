"""Each turn's reward is on that turn's tokens in the real package, however the episode ends."""

from __future__ import annotations

from gem_conform.candidate import Candidate
from gem_conform.measured import check_turn_rewards
from gem_parity.counted import ENDS, REWARDS, play_counting


def test_the_episodes_end_in_every_way_after_three_turns():
    for end, episodes in play_counting().items():
        assert [episode.stop_reason for episode in episodes] == [ENDS[end][1]] * 2
        assert [episode.rewards for episode in episodes] == [REWARDS] * 2, end


def test_rewards_1_2_3_are_on_the_tokens_of_turns_1_2_3(trainer_name, tmp_path):
    assert "turn limit" in check_turn_rewards(Candidate(trainer_name, tmp_path))
