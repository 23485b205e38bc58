"""Turns and the rows they stand in: what they hold, and what they cannot hold."""

from __future__ import annotations

import pytest

from gem_adapters.token_rows import RowLabel
from gem_core.errors import GemError
from gem_oat.rows import Row, SegmentRow, bootstrap_row, segment_rows, turn_rows


def test_turns_hold_what_is_before_and_in_them(episodes):
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
    assert not SegmentRow().trained and SegmentRow().segment == (-1, 0)


def test_a_row_is_a_segment(episodes):
    for number, episode in enumerate(episodes()):
        turns = turn_rows(episode, number, 0)
        rows = segment_rows(turns)
        assert [turn for row in rows for turn in row.turns] == turns
        used = [segment for segment in episode.segments if segment.spans]
        for row, segment in zip(rows, used, strict=True):
            assert row.token_ids == segment.token_ids[: segment.spans[-1][2]]
            for turn in row.turns:
                start = turn.action.start + 1
                assert row.token_ids[:start] == list(turn.prompt)
                assert row.token_ids[start : turn.action.stop + 1] == list(turn.response)
            assert row.trained == [turn for turn in row.turns if not turn.excluded]
        assert any(len(row.turns) > 1 for row in rows) or len(turns) == len(rows)
    assert segment_rows([]) == []


def test_a_state_continues_its_segment_or_has_a_row_of_its_own(episodes):
    episode = next(e for e in episodes() if len(e.segments) == 1)
    turns = turn_rows(episode, 0, 0)
    (row,) = segment_rows(turns)
    following = bootstrap_row(episode, 0, 0, [*row.token_ids, 8, 9])
    (joined,) = segment_rows([*turns, following])
    assert joined.token_ids == [*row.token_ids, 8, 9, 0]
    assert joined.turns == (*turns, following) and joined.trained == row.trained
    rewritten = bootstrap_row(episode, 0, 0, [row.token_ids[0] + 1, 8, 9])
    before, own = segment_rows([*turns, rewritten])
    assert before == row and own == SegmentRow([*rewritten.prompt, 0], (rewritten,))
    assert segment_rows([following]) == [SegmentRow([*following.prompt, 0], (following,))]
