"""The turns of an episode, and the rows of Oat's batch that they stand in.

The turns of an episode are its `turn_rows` and, for a critic, the `bootstrap_row` of the state in
which a limit cut it. `segment_rows` puts those with a common history into one row of Oat's batch:
an episode is one row, or one per segment where its history is rewritten. A row says what it holds,
whatever order Oat shuffles the batch into.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from gem_adapters.token_rows import RowLabel
from gem_core.episodes.data import Episode, Support
from gem_core.errors import GemError


class Row(NamedTuple):
    """A turn: all tokens before its action, and the action. ``Row(-1)`` is padding.

    Attributes:
        episode: number of its episode in the run, -1 in padding.
        turn: counts from 0 in the episode.
        segment: token sequence of the episode that the turn is in.
        group: of the episode.
        env: of the episode, numbered alike on all ranks.
        reward: of the turn.
        excluded: in no statistic and in no loss: padding, aborted turns, bootstrap states.
        bootstrap_state: not a turn, but the state in which a limit cut the episode.
        prompt: token ids before the action.
        response: token ids of the action; one legal id where there is none.
        logprobs: sampling log-probability of each of them.
        support: the tokens that could be drawn in the place of each; empty where none were kept.
        texts: what the environment showed and the action, for logs.
    """

    episode: int
    turn: int = 0
    segment: int = 0
    group: int = 0
    env: int = 0
    reward: float = 0.0
    excluded: bool = True
    bootstrap_state: bool = False
    prompt: Sequence[int] = (0,)
    response: Sequence[int] = (0,)
    logprobs: Sequence[float] = (0.0,)
    support: Support = []  # noqa: RUF012 - never changed
    texts: tuple[str, str] = ("", "")

    @property
    def label(self) -> RowLabel:
        """What the row is, for `gem_adapters.token_rows.TokenRows`."""
        return RowLabel(self.episode, self.turn, self.group, self.env)

    @property
    def action(self) -> slice:
        """Where its tokens are predicted: index p predicts token p + 1.

        The first of these places is the last prompt token, where a critic reads the turn's state.
        """
        first = len(self.prompt) - 1
        return slice(first, first + len(self.response))

    @property
    def is_turn(self) -> bool:
        """Whether the policy acted here: neither padding nor a bootstrap state."""
        return self.episode >= 0 and not self.bootstrap_state


class SegmentRow(NamedTuple):
    """A row of Oat's batch. ``SegmentRow()`` is padding.

    Attributes:
        token_ids: of a segment up to the end of its last turn, or up to a bootstrap state; then
            one more token, as Oat reads no value at the last.
        turns: the turns in it in time order, and the bootstrap state; each one's prompt and
            response are where it stands in ``token_ids``.
    """

    token_ids: Sequence[int] = (0, 0)
    turns: tuple[Row, ...] = ()

    @property
    def trained(self) -> list[Row]:
        """Return the turns that are trained on."""
        return [turn for turn in self.turns if not turn.excluded]

    @property
    def segment(self) -> tuple[int, int]:
        """Return the episode and the segment; (-1, 0) for padding."""
        return (self.turns[0].episode, self.turns[0].segment) if self.turns else (-1, 0)


def segment_rows(turns: Sequence[Row]) -> list[SegmentRow]:
    """Return the rows of one episode: the turns of a segment share one.

    Args:
        turns: all of the episode, in time order; after them its bootstrap state, if any. It is in
            the last segment's row where it continues that segment, else in a row of its own.
    """
    actions = [turn for turn in turns if turn.is_turn]
    rows = []
    for _, group in groupby(actions, key=lambda turn: turn.segment):
        mine = tuple(group)
        rows.append(SegmentRow([*mine[-1].prompt, *mine[-1].response], mine))
    for state in turns[len(actions) :]:
        token_ids = [*state.prompt, *state.response]
        last = rows[-1] if rows else SegmentRow((), ())
        continued = list(state.prompt[: len(last.token_ids)]) == list(last.token_ids)
        if rows and continued:
            rows[-1] = SegmentRow(token_ids, (*last.turns, state))
        else:
            rows.append(SegmentRow(token_ids, (state,)))
    return rows


def turn_rows(episode: Episode, number: int, env: int) -> list[Row]:
    """The turns of a finished episode, in time order.

    Args:
        episode: a finished episode.
        number: identifies it in the run.
        env: identifies its environment, alike on all ranks.

    Raises:
        GemError: a turn has no log-probabilities, or is masked in part.
    """
    rows = []
    for segment_number, turn_number, start, end in episode.spans():
        segment = episode.segments[segment_number]
        turn = episode.turns[turn_number]
        if segment.logprobs is None:
            raise GemError(
                "Oat needs the sampling log-probability of every token; have the "
                "engine report them (vLLM: SamplingParams(logprobs=0))."
            )
        if any(bool(trained) == turn.aborted for trained in segment.loss_mask[start:end]):
            raise GemError(
                f"Episode {number}, turn {turn_number}: rows mask whole turns, not tokens. Mask "
                "all tokens of the turn and set turn.aborted, or none."
            )
        row = Row(
            episode=number,
            turn=turn_number,
            segment=segment_number,
            group=episode.group,
            env=env,
            reward=turn.reward,
            excluded=turn.aborted,
            prompt=segment.token_ids[:start],
            response=segment.token_ids[start:end],
            logprobs=segment.logprobs[start:end],
            support=(segment.support or [])[start:end],
            texts=(turn.observation, turn.action),
        )
        rows.append(row)
    return rows


def bootstrap_row(episode: Episode, number: int, env: int, state: Sequence[int]) -> Row:
    """The state at whose prompt's end a critic reads V, where a limit cut the episode.

    Args:
        episode: a finished episode.
        number: as in `turn_rows`.
        env: as in `turn_rows`.
        state: token ids of the state, see `EpisodeMachine.bootstrap_state`.
    """
    return Row(
        episode=number,
        turn=len(episode.turns),
        group=episode.group,
        env=env,
        bootstrap_state=True,
        prompt=state,
    )
