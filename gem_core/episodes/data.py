"""The data of an episode: completions of the engine, turns, segments, the episode itself.

Nothing here depends on an environment, a tokenizer or a trainer. Every class can be pickled, and
episodes can be written as JSON and read back (`Episode.to_dict`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Literal


class FinishReason(str, Enum):
    """Why the engine stopped sampling one completion."""

    STOP = "stop"
    """The policy sampled a stop token; it is the last of ``token_ids``."""
    LENGTH = "length"
    """The token cap of the turn was reached; the action is cut off."""
    ABORT = "abort"
    """The engine aborted the request (weight sync, shutdown); the episode cannot continue."""


TurnKind = Literal["action", "summary"]
"""A summary answers a request of ``history = "compact"``; no environment sees it."""
Support = list["array[int] | None"]
"""Per token the ids that could be drawn in its place, ascending, as ``array("i")`` (4 bytes an id);
``None`` where nothing was cut off, and where nothing was sampled."""


class StopReason(str, Enum):
    """Why an episode is over."""

    TERMINATED = "terminated"
    """The environment ended the task."""
    TRUNCATED_TURNS = "truncated_turns"
    """A turn limit that is not part of the task was reached."""
    TRUNCATED_TOKENS = "truncated_tokens"
    """The token budget of the whole episode was used up."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The next prompt leaves no space in the model's context; nothing is cut silently."""
    INVALID_FORMAT = "invalid_format"
    """The environment ended the task because an action had the wrong format."""
    ENV_ERROR = "env_error"
    """The environment raised an exception; its text is in `Episode.error`."""
    TOOL_TIMEOUT = "tool_timeout"
    """A tool timed out and the environment could not continue."""
    DEADLINE = "deadline"
    """A turn or the episode took longer than its wall-clock deadline."""
    ABORTED = "aborted"
    """The trainer or the engine aborted the episode."""

    @property
    def failed(self) -> bool:
        """Whether the episode failed for a reason that is not the policy's decision."""
        return self in _FAILED

    @property
    def truncated(self) -> bool:
        """Whether the task was cut off from outside, so that bootstrapping a value is right."""
        return self in _TRUNCATED


_FAILED = frozenset(
    {StopReason.ENV_ERROR, StopReason.TOOL_TIMEOUT, StopReason.DEADLINE, StopReason.ABORTED}
)
_TRUNCATED = frozenset(
    {StopReason.TRUNCATED_TURNS, StopReason.TRUNCATED_TOKENS, StopReason.CONTEXT_OVERFLOW}
)


@dataclass(slots=True)
class Completion:
    """What an engine returns for one prompt.

    Attributes:
        token_ids: the sampled ids, the stop token included; at least one.
        logprobs: natural-log probability of each id under the sampling policy, or ``None`` where
            the engine does not report them.
        finish_reason: why sampling stopped.
        text: the decoded action, where the context has no tokenizer (chat endpoints).
        support: one entry per id; ``None`` where the engine was not asked, or cannot tell.
        version: training steps behind the weights that sampled it; ``None`` = not known.
    """

    token_ids: list[int]
    logprobs: list[float] | None = None
    finish_reason: FinishReason = FinishReason.STOP
    text: str | None = None
    support: Support | None = None
    version: int | None = None


@dataclass(slots=True)
class Turn:
    """One action of the policy and the environment's response to it, or a summary.

    Attributes:
        index: 0-based number of the turn in its episode.
        observation: text that the environment showed before the action.
        action: decoded action text, the stop token excluded.
        reward: reward of this turn, exactly as the environment returned it.
        terminated: the environment ended the task here.
        truncated: the episode was cut off here from outside.
        info: the environment's info after the action.
        finish_reason: why the completion ended.
        aborted: the turn must not be trained on and is excluded from all statistics.
        kind: a ``summary`` has the request for it as its observation, reward 0, and no info.
        version: of the weights that sampled its tokens, see `Completion`.
    """

    index: int
    observation: str
    action: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    finish_reason: FinishReason = FinishReason.STOP
    aborted: bool = False
    kind: TurnKind = "action"
    version: int | None = None


@dataclass(slots=True)
class Segment:
    """One token sequence that the policy was conditioned on.

    Attributes:
        token_ids: prompt, actions and observations in order, length L; ends on an action token.
        loss_mask: length L, 1 on sampled tokens that are trained on, else 0.
        logprobs: length L, sampling log-probability on action tokens and 0.0 elsewhere; ``None``
            where the engine reports none.
        spans: ``(turn, start, end)`` with ``token_ids[start:end]`` = the action of that turn.
        support: length L, the tokens that could be drawn; ``None`` where it was not kept for every
            action.
    """

    token_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    support: Support | None = None

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first action (all tokens where there is no action)."""
        return self.spans[0][1] if self.spans else len(self.token_ids)

    def add_context(self, token_ids: list[int]) -> None:
        """Append tokens that the policy reads but did not sample."""
        self.token_ids.extend(token_ids)
        self.loss_mask.extend([0] * len(token_ids))
        if self.logprobs is not None:
            self.logprobs.extend([0.0] * len(token_ids))
        if self.support is not None:
            self.support.extend([None] * len(token_ids))

    def add_action(self, turn: int, completion: Completion, trained: bool = True) -> None:
        """Append the sampled tokens of ``turn``, and whether they are trained on."""
        start = len(self.token_ids)
        self.token_ids.extend(completion.token_ids)
        self.loss_mask.extend([int(trained)] * len(completion.token_ids))
        if completion.logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs.extend(completion.logprobs)
        if completion.support is None:
            self.support = None
        elif self.support is not None:
            self.support.extend(completion.support)
        elif not self.spans:
            self.support = [*[None] * start, *completion.support]
        self.spans.append((turn, start, len(self.token_ids)))


@dataclass(slots=True)
class Episode:
    """One finished episode: its turns, and the token segments that are trained on.

    Attributes:
        env_id: id of the environment.
        seed: the seed that ``env.reset`` got.
        group: id of the initial state; episodes of one group share it (GRPO, RLOO).
        index: position of the episode's task in the run, -1 outside a run.
        turns: the turns in time order.
        segments: token sequences; one per episode with an append-only history.
        stop_reason: why it ended.
        success: the environment's own ``info["success"]``, ``False`` where the episode was cut off.
        final_observation: the last observation, which no action follows.
        error: what went wrong, if ``stop_reason.failed``.
        seconds: wall time spent, by ``"env"`` and ``"policy"``.
    """

    env_id: str
    seed: int | None
    group: int = 0
    index: int = -1
    turns: list[Turn] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    stop_reason: StopReason = StopReason.TERMINATED
    success: bool = False
    final_observation: str = ""
    error: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rewards(self) -> list[float]:
        """Reward of every turn, in time order."""
        return [turn.reward for turn in self.turns]

    @property
    def acts(self) -> list[Turn]:
        """The turns that the environment answered, or should have: all but summaries."""
        return [turn for turn in self.turns if turn.kind == "action"]

    @property
    def total_reward(self) -> float:
        """Undiscounted sum of the turn rewards."""
        return float(sum(self.rewards))

    @property
    def action_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(end - start for _, _, start, end in self.spans())

    def spans(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield ``(segment, turn, start, end)`` for every action, in time order."""
        for number, segment in enumerate(self.segments):
            for turn, start, end in segment.spans:
                yield number, turn, start, end

    def exclude(self) -> None:
        """Keep the episode as a record, but train on none of it."""
        for turn in self.turns:
            turn.aborted = True
        for segment in self.segments:
            segment.loss_mask = [0] * len(segment.loss_mask)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; `from_dict` is the inverse, except for non-JSON infos.

        Only a summary has its kind in it; versions and supports are in it where they are known.
        """
        data = asdict(self)
        data["stop_reason"] = self.stop_reason.value
        for turn in data["turns"]:
            turn["finish_reason"] = FinishReason(turn["finish_reason"]).value
            turn["info"] = _jsonable(turn["info"])
            if turn["kind"] == "action":
                del turn["kind"]
            if turn["version"] is None:
                del turn["version"]
        for segment in data["segments"]:
            segment["spans"] = [list(span) for span in segment["spans"]]
            support = segment.pop("support")
            if support is not None:
                segment["support"] = [ids if ids is None else list(ids) for ids in support]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Episode:
        """Build an episode from the result of `to_dict`."""
        fields = dict(data)
        fields["stop_reason"] = StopReason(fields["stop_reason"])
        fields["turns"] = [
            Turn(**{**turn, "finish_reason": FinishReason(turn["finish_reason"])})
            for turn in fields["turns"]
        ]
        fields["segments"] = [_read_segment(seg) for seg in fields["segments"]]
        return cls(**fields)


def _read_segment(data: dict[str, Any]) -> Segment:
    """Build a segment from its part of `Episode.to_dict`."""
    spans = [(turn, start, end) for turn, start, end in data["spans"]]
    support = data.get("support")  # files of earlier versions have none
    if support is not None:
        support = [ids if ids is None else array("i", ids) for ids in support]
    return Segment(**{**data, "spans": spans, "support": support})


def _jsonable(value: Any) -> Any:
    """Reduce ``value`` to JSON types; anything else becomes its ``repr``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return repr(value)
