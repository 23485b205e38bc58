"""The text and the tokens of an episode: what its policy reads and writes, turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gem_core.episodes.data import FinishReason, Segment, StopReason

if TYPE_CHECKING:
    from gem_core.episodes.compact import Compact
    from gem_core.episodes.context import Context
    from gem_core.episodes.data import Completion, Episode
    from gem_core.episodes.limits import Limits


class Transcript:
    """Writes prompts and actions into the segments of one episode, and counts their tokens.

    Attributes:
        text: the prompt as text.
    """

    def __init__(self, context: Context, limits: Limits, segments: list[Segment]) -> None:
        self.text = ""
        self._context = context
        self._limits = limits
        self._segments = segments
        self._generated = 0  # tokens after the first prompt
        self._turn_closed = False  # the last action has the text that ends a turn
        self._held: tuple[str, dict[str, Any]] | None = None  # the observation after a summary
        self._final_ids: list[int] = []
        self._final_state: list[int] | None = None

    @property
    def token_ids(self) -> list[int]:
        """The ids that the policy must continue, as a new list."""
        return list(self._segments[-1].token_ids)

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of the next action."""
        return min(self._compute_budgets())

    @property
    def summary_request(self) -> str | None:
        """The request, if the prompt asks for a summary."""
        compact = self._asking
        return None if compact is None else compact.prompt

    def start(self, observation: str, info: dict[str, Any]) -> None:
        """Write the first prompt."""
        text = self._context.start(observation, info)
        ids = self._encode(text)
        self._begin_segment(text)
        self._segments[-1].add_context(ids)

    def add_action(self, turn: int, completion: Completion) -> tuple[str, FinishReason]:
        """Write the sampled tokens of a turn; return the action as text and why it ended.

        The engine's report that the policy stopped is trusted, even if the last token is none of
        the tokenizer's stop ids. A stop token is not part of the text.

        Raises:
            ValueError: see `gem_core.episodes.machine.EpisodeMachine.feed`.
        """
        tokenizer = self._context.tokenizer
        ids = completion.token_ids
        stopped = completion.finish_reason is FinishReason.STOP
        if tokenizer is None:
            text = completion.text or ""
            self._turn_closed = stopped
        else:
            self._check(completion)
            ends_in_stop = ids[-1] in tokenizer.stop_ids
            text = tokenizer.decode(ids[:-1] if ends_in_stop else ids)
            stopped = stopped or ends_in_stop
            self._turn_closed = ends_in_stop and self._context.closes(ids[-1])
            self._segments[-1].add_action(turn, completion, self._is_trained())
        self._generated += len(ids)
        self.text += text
        return text, FinishReason.STOP if stopped else FinishReason.LENGTH

    def add_observation(self, action: str, observation: str, info: dict[str, Any]) -> None:
        """Write the prompt that follows an action: its continuation, or a new segment.

        Where a history is compacted, and the prompt would pass its budget, it is the request for a
        summary; `add_summary` then writes the one with the observation.
        """
        compact = self._context.compact
        if compact is not None and self._count_next(action, observation, info) > compact.budget:
            self._held = observation, info
            observation, info = compact.prompt, {}
        extension = self._context.extend(action, self._turn_closed, observation, info)
        ids = self._encode(extension.text)
        if extension.fresh:
            self._begin_segment(extension.text)
        else:
            self.text += self._context.plain(extension.text)
            self._generated += len(ids)
        self._segments[-1].add_context(ids)

    def add_summary(self, summary: str) -> None:
        """Begin the segment that follows the policy's summary."""
        assert self._held is not None, "it was asked for"
        text = self._context.fold(summary, *self._held)
        self._held = None
        ids = self._encode(text)
        self._begin_segment(text)
        self._segments[-1].add_context(ids)

    def _count_next(self, action: str, observation: str, info: dict[str, Any]) -> int:
        """Return the tokens of the prompt that would follow an action."""
        text, fresh = self._context.try_extend(action, self._turn_closed, observation, info)
        return len(self._encode(text)) + (0 if fresh else len(self._segments[-1].token_ids))

    @property
    def _asking(self) -> Compact | None:
        """The settings of the summary that the prompt asks for, if it does."""
        return None if self._held is None else self._context.compact

    def _is_trained(self) -> bool:
        """Whether the next tokens are trained on: a summary need not be."""
        return self._asking is None or self._asking.trained

    def find_spent_limit(self) -> StopReason | None:
        """Return the limit that leaves no token for the next action, if there is one."""
        _, in_context, in_episode = self._compute_budgets()
        if in_context < 1:
            return StopReason.CONTEXT_OVERFLOW
        return StopReason.TRUNCATED_TOKENS if in_episode < 1 else None

    def end(self) -> None:
        """Keep the ids of the last prompt, before the record of the episode loses them."""
        self._final_ids = self.token_ids if self._segments else []

    def compute_final_state(self, episode: Episode) -> list[int]:
        """Return the ids of the state in which a limit cut off the episode, as a new list.

        See `gem_core.episodes.machine.EpisodeMachine.bootstrap_state`.
        """
        if self._final_state is None:
            cut = episode.stop_reason.truncated and episode.turns
            ids = self._continue_final_ids(episode) if cut else []
            limit = self._limits.max_context_tokens
            self._final_state = ids if limit is None or len(ids) <= limit else []
        return list(self._final_state)

    def _continue_final_ids(self, episode: Episode) -> list[int]:
        """Return the last prompt's ids, and those of the last observation if they lack it."""
        ids = self._final_ids
        if ids != self._segments[-1].token_ids:
            return ids
        last = episode.turns[-1]
        text, fresh = self._context.extend(
            last.action, self._turn_closed, episode.final_observation, last.info
        )
        return self._encode(text) if fresh else [*ids, *self._encode(text)]

    def _begin_segment(self, text: str) -> None:
        self.text = self._context.plain(text)
        self._segments.append(Segment())

    def _compute_budgets(self) -> tuple[int, int, int]:
        """Return the tokens left for the next action in the turn, the context and the episode."""
        limits = self._limits
        asking = self._asking
        in_turn = limits.max_tokens_per_turn if asking is None else asking.max_tokens
        in_context = in_turn
        in_episode = in_turn
        if limits.max_context_tokens is not None:
            in_context = limits.max_context_tokens - len(self._segments[-1].token_ids)
        if limits.max_episode_tokens is not None:
            in_episode = limits.max_episode_tokens - self._generated
        return in_turn, in_context, in_episode

    def _check(self, completion: Completion) -> None:
        count = len(completion.token_ids)
        cap = self.max_tokens
        if not 1 <= count <= cap:
            raise ValueError(f"The engine returned {count} tokens; 1 to {cap} were requested.")
        if completion.logprobs is not None and len(completion.logprobs) != count:
            raise ValueError(
                f"The engine returned {len(completion.logprobs)} logprobs for {count} tokens."
            )
        if completion.support is not None and len(completion.support) != count:
            raise ValueError(
                f"The engine returned {len(completion.support)} supports for {count} tokens."
            )

    def _encode(self, text: str) -> list[int]:
        return self._context.tokenizer.encode(text) if self._context.tokenizer else []
