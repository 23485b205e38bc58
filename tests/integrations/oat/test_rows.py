"""Rows of turns: what they hold, and what they cannot hold."""

from __future__ import annotations

import pytest

from gem_core.adapters.token_rows import RowLabel
from gem_core.errors import GemError
from gem_oat.rows import Row, bootstrap_row, turn_rows


def test_rows_are_the_turns(episodes):
    for number, episode in enumerate(episodes()):
        rows = turn_rows(episode, number, env=4)
        assert [row.turn for row in rows] == [turn.index for turn in episode.turns]
        for row, turn in zip(rows, episode.turns, strict=True):
            segment = episode.segments[row.segment]
            start = len(row.prompt)
            end = start + len(row.response)
            assert (row.turn, start, end) in segment.spans
            assert [*row.prompt, *row.response] == segment.token_ids[:end]
            assert row.logprobs == segment.logprobs[start:end]
            assert row.label == RowLabel(number, turn.index, episode.group, 4)
            assert (row.reward, row.excluded) == (turn.reward, turn.aborted)
            assert row.texts == (turn.observation, turn.action)
            assert row.is_turn


def test_turns_of_failed_episodes_are_excluded(episodes):
    excluded = set()
    for number, episode in enumerate(episodes()):
        excluded |= {row.episode for row in turn_rows(episode, number, 0) if row.excluded}
    failed = {n for n, episode in enumerate(episodes()) if episode.stop_reason.failed}
    assert failed and excluded == failed


def test_half_masked_turns_are_refused(episodes):
    episode = episodes()[0]
    _, start, end = episode.segments[0].spans[0]
    assert end - start > 1
    episode.segments[0].loss_mask[start] = 0
    with pytest.raises(GemError, match=r"Episode 3, turn 0.*Mask all tokens"):
        turn_rows(episode, 3, 0)


def test_missing_logprobs_are_refused(episodes):
    episode = episodes()[0]
    episode.segments[0].logprobs = None
    with pytest.raises(GemError, match=r"log-probability.*logprobs=0"):
        turn_rows(episode, 0, 0)


def test_a_bootstrap_state_follows_the_last_turn_and_is_none(episodes):
    episode = episodes()[1]
    row = bootstrap_row(episode, 7, 3, [5, 6, 7])
    assert row.label == RowLabel(7, len(episode.turns), episode.group, 3)
    assert (row.excluded, row.is_turn, list(row.prompt)) == (True, False, [5, 6, 7])
    assert len(row.response) == len(row.logprobs) == 1


def test_padding_is_no_turn():
    assert not Row(-1).is_turn and Row(-1).excluded
