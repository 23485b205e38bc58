"""The state of an episode: who may act, what was recorded, and how it goes on after each answer.

It has no environment, no threads and no clock; `gem_core.episodes.machine` adds them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gem_core.episodes.data import Completion, Episode, FinishReason, StopReason, Turn
from gem_core.episodes.endings import end_episode
from gem_core.episodes.env_results import check_reset, check_step, stop_reason
from gem_core.episodes.request_seed import Split, request_seed
from gem_core.episodes.transcript import Transcript
from gem_core.errors import EpisodeStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gem_core.episodes.context import Context
    from gem_core.episodes.limits import Limits


class EpisodeState:
    """What is known of one episode, and the steps from one state to the next.

    A subclass calls the environment. `begin` precedes the reset and `accept` each step; what these
    return goes to `_read_answer`. `_end` may come at any time.
    """

    def __init__(
        self, episode: Episode, context: Context, limits: Limits, run_seed: int, split: Split
    ) -> None:
        self.context = context
        self.limits = limits
        self._episode = episode
        self._transcript = Transcript(context, limits, episode.segments)
        self._run_seed = run_seed
        self._split: Split = split
        self._observation = ""
        self._info: dict[str, Any] = {}
        self._ready: list[int] | None = None  # the prompt after a summary
        self._unanswered: Turn | None = None  # the turn whose result the environment owes
        self._started = False
        self._over = False

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._over

    @property
    def episode(self) -> Episode:
        """The finished episode.

        Raises:
            EpisodeStateError: the episode is not over.
        """
        if not self._over:
            raise EpisodeStateError("The episode is not over: call feed() until it returns None.")
        return self._episode

    @property
    def turn(self) -> int:
        """0-based number of the turn that the next completion belongs to."""
        return len(self._episode.turns)

    @property
    def asks_summary(self) -> bool:
        """Whether the prompt asks for a summary of the episode, not for an action."""
        return self._transcript.summary_request is not None

    @property
    def ready(self) -> list[int] | None:
        """The next prompt, where `accept` took a summary, so that no environment is called."""
        return None if self._over else self._ready

    @property
    def request_seed(self) -> int:
        """Seed of the request for the next completion, see `gem_core.episodes.request_seed`."""
        return request_seed(self._run_seed, self._split, self.seed, self.index, self.turn)

    @property
    def split(self) -> Split:
        """Whether the episode is trained on."""
        return self._split

    @property
    def seed(self) -> int | None:
        """The seed of the episode."""
        return self._episode.seed

    @property
    def shown(self) -> tuple[str, dict[str, Any]]:
        """The latest observation and info, for scripted players."""
        return self._observation, self._info

    @property
    def env_id(self) -> str:
        """Id of the environment."""
        return self._episode.env_id

    @property
    def index(self) -> int:
        """Position of the episode's task in the run, -1 outside a run."""
        return self._episode.index

    @property
    def prompt_text(self) -> str:
        """The prompt as text, for trainers that tokenise it themselves."""
        return self._transcript.text

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages, for chat endpoints."""
        return self.context.messages

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of the next completion (≥ 1 while the episode runs)."""
        return self._transcript.max_tokens

    def bootstrap_state(self) -> list[int]:
        """Return the ids of the state in which a limit cut off the episode, for a critic to value.

        The list is empty for every other end of an episode, for an episode without an action, and
        where the state does not fit into the context.
        """
        return self._transcript.compute_final_state(self.episode)

    def add_seconds(self, kind: str, seconds: float) -> None:
        """Add wall time to the episode's total for ``kind`` (``"env"`` or ``"policy"``)."""
        spent = self._episode.seconds
        spent[kind] = spent.get(kind, 0.0) + seconds

    def begin(self) -> bool:
        """Begin the episode; return whether its environment must be reset: not if it was aborted.

        Raises:
            EpisodeStateError: it has begun before.
        """
        if self._started:
            raise EpisodeStateError("start() was called before; make a new machine per episode.")
        self._started = True
        return not self._over

    def accept(self, completion: Completion) -> str | None:
        """Record a completion; return the action to play.

        It is ``None`` where there is none: the engine gave it up, or it is a summary, and `ready`
        is the next prompt.

        Raises:
            EpisodeStateError: the episode has not started or is over.
            ValueError: see `gem_core.episodes.machine.EpisodeMachine.feed`.
        """
        if not self._started or self._over:
            raise EpisodeStateError("feed() needs an episode that has started and is not over.")
        if completion.finish_reason is FinishReason.ABORT:
            self._end(StopReason.ABORTED, "the engine aborted the request")
            return None
        request = self._transcript.summary_request
        text, why = self._transcript.add_action(self.turn, completion)
        turn = Turn(
            self.turn, self._observation, text, finish_reason=why, version=completion.version
        )
        if request is not None:
            turn.observation, turn.kind = request, "summary"
            self._add_summary(turn)
            return None
        self._ready = None
        self._episode.turns.append(turn)
        self._unanswered = turn
        cut = why is FinishReason.LENGTH
        return "" if cut and self.limits.cut_action == "invalid" else text

    def _add_summary(self, turn: Turn) -> None:
        """Record a summary, which has no reward of its own; the next prompt is `ready`."""
        compact = self.context.compact
        assert compact is not None, "it asked"
        turn.aborted = not compact.trained
        self._episode.turns.append(turn)
        self._transcript.add_summary(turn.action)
        self._ready = self._next_prompt()

    def _read_answer(self, result: Any) -> Callable[[], list[int] | None]:
        """Check what the environment returned from a reset or a step.

        Returns:
            What goes on with it and returns the next prompt's ids, ``None`` at the end.

        Raises:
            EnvResultError: the result is malformed.
        """
        if self._unanswered is None:
            return partial(self._show, *check_reset(result))
        return partial(self._advance, self._unanswered, *check_step(result))

    def _end(self, reason: StopReason, error: str | None = None) -> list[int] | None:
        """End the episode; return ``None``: no prompt follows."""
        self._transcript.end()
        self._episode.final_observation = self._observation
        end_episode(
            self._episode,
            reason,
            error,
            unanswered=self._unanswered,
            train_on_failed=self.limits.train_on_failed,
        )
        self._over = True
        return None

    def _show(self, observation: str, info: dict[str, Any]) -> list[int] | None:
        """Record what the reset returned; return the first prompt."""
        self._observation = observation
        self._info = info
        self._transcript.start(observation, info)
        return self._next_prompt()

    def _advance(
        self,
        turn: Turn,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> list[int] | None:
        """Record the result of the environment's step; return the next prompt."""
        self._unanswered = None
        turn.reward = reward
        turn.info = info
        turn.terminated = terminated
        turn.truncated = truncated
        self._observation = observation
        self._info = info
        if terminated or truncated:
            return self._end(stop_reason(terminated, info))
        most = self.limits.max_turns
        if most is not None and len(self._episode.acts) >= most:
            return self._end(StopReason.TRUNCATED_TURNS)
        self._transcript.add_observation(turn.action, observation, info)
        return self._next_prompt()

    def _next_prompt(self) -> list[int] | None:
        spent = self._transcript.find_spent_limit()
        return self._transcript.token_ids if spent is None else self._end(spent)
