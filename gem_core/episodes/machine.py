"""The episode machine: a state machine over one environment and one context, without I/O.

    machine = EpisodeMachine(env, context, limits, seed=7)
    prompt_ids = machine.start()
    while prompt_ids is not None:
        prompt_ids = machine.feed(engine(prompt_ids, machine.max_tokens))
    episode = machine.episode

Prompts, truncation, masks, the placement of rewards and seeding are implemented only here.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gem_core.env.interface import Env
from gem_core.env.remote.env import RemoteCallsEnv
from gem_core.env.remote.errors import EnvDeadlineError, WorkerPoolError, remote_place
from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, Episode, FinishReason, Segment, StopReason, Turn
from gem_core.episodes.endings import exclude_turn, trim
from gem_core.episodes.env_results import check_reset, check_step, stop_reason
from gem_core.episodes.limits import Limits
from gem_core.episodes.request_seed import Split, request_seed
from gem_core.errors import (
    EpisodeStateError,
    error_line,
    is_interruption,
    require_kind,
    require_methods,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gem_core.env.remote.outcome import Outcome

__all__ = ["EpisodeMachine", "Limits"]


class EpisodeMachine:
    """Plays one episode from the completions that it gets; see the module docstring.

    It is not reentrant: make one call at a time. Only `abort` may be called from another thread
    while `feed` waits for the environment; the late result is then dropped.

    Where the environment lives in a worker process or behind a server, nothing need wait:
    `submit_start` and `submit_feed` begin what `start` and `feed` do, `receive` ends it, and the
    caller closes the environment (`submit_close`, `receive_close`).

    Only what the environment raises ends its episode as `StopReason.ENV_ERROR`. What the context,
    the tokenizer or the machine itself raise is raised.

    Args:
        env: the environment, of this episode alone.
        context: renders its prompts, of this episode alone.
        limits: what may end it besides the task.
        seed: of the environment's reset.
        group: see `gem_core.episodes.data.Episode`.
        index: position of its task in a run, -1 outside one.
        env_id: the environment in records; ``None``: as its spec says.
        run_seed: of the run, see `gem_core.episodes.request_seed`.
        split: whether it is trained on.

    Raises:
        KindError: an argument is of another kind.
    """

    def __init__(
        self,
        env: Env,
        context: Context,
        limits: Limits | None = None,
        *,
        seed: int | None = None,
        group: int = 0,
        index: int = -1,
        env_id: str | None = None,
        run_seed: int = 0,
        split: Split = "train",
    ) -> None:
        _check_arguments(env, context, limits, seed)
        self.env = env
        self.context = context
        self.limits = limits or Limits()
        spec = getattr(env, "spec", None)
        self._episode = Episode(
            env_id or (spec.id if spec else type(env).__name__), seed, group=group, index=index
        )
        self._run_seed = run_seed
        self._split: Split = split
        self._observation = ""
        self._info: dict[str, Any] = {}
        self._generated = 0
        self._last_ids: list[int] = []
        self._prompt_text = ""
        self._started = False
        self._over = False
        self._busy = False
        self._submitted: float | None = None  # when a call elsewhere was submitted
        self._closed = False
        self._bootstrap: list[int] | None = None
        self._pending_turn: Turn | None = None
        self._turn_closed = False  # the last action has the text that ends a turn
        self._lock = threading.RLock()

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
    def request_seed(self) -> int:
        """Seed of the request for the next completion, see `gem_core.episodes.request_seed`."""
        return request_seed(self._run_seed, self._split, self.seed, self.index, self.turn)

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
    def needs_close(self) -> bool:
        """Whether the episode is over, but its environment is not closed and not in a call."""
        return self._over and not self._busy and not self._closed

    @property
    def index(self) -> int:
        """Position of the episode's task in the run, -1 outside a run."""
        return self._episode.index

    @property
    def prompt_text(self) -> str:
        """The prompt as text, for trainers that tokenise it themselves."""
        return self._prompt_text

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages, for chat endpoints."""
        return self.context.messages

    @property
    def max_tokens(self) -> int:
        """Largest number of tokens of the next completion (≥ 1 while the episode runs)."""
        return min(self._token_budgets())

    def bootstrap_state(self) -> list[int]:
        """Return the ids of the state in which a limit cut off the episode, for a critic to value.

        The list is empty for every other end of an episode, for an episode without an action, and
        where the state does not fit into the context.
        """
        if self._bootstrap is None:
            self._bootstrap = self._bootstrap_ids(self.episode)
        return list(self._bootstrap)

    def _bootstrap_ids(self, episode: Episode) -> list[int]:
        limit = self.limits.max_context_tokens
        if not episode.stop_reason.truncated or not episode.turns:
            return []
        ids = self._last_ids
        if ids == episode.segments[-1].token_ids:  # no prompt has the last observation yet
            last = episode.turns[-1]
            text, fresh = self.context.extend(
                last.action, self._turn_closed, episode.final_observation, last.info
            )
            ids = self._encode(text) if fresh else [*ids, *self._encode(text)]
        return ids if limit is None or len(ids) <= limit else []

    def start(self) -> list[int] | None:
        """Reset the environment; return the first prompt's ids, or ``None`` if that failed."""
        if not self._starts():
            return None
        return self._closed_at_end(self._continue(lambda: self.env.reset(seed=self.seed)))

    def feed(self, completion: Completion) -> list[int] | None:
        """Play the current prompt's completion; return the next prompt's ids, ``None`` at the end.

        Raises:
            EpisodeStateError: the episode has not started or is over.
            ValueError: the completion has no tokens, more than `max_tokens`, or not one
                log-probability per token.
        """
        sent = self._sent(completion)
        if sent is None:
            return self._closed_at_end(None)
        return self._closed_at_end(self._continue(lambda: self.env.step(sent)))

    def submit_start(self) -> Outcome[Any] | None:
        """Begin `start` where the environment lives; ``None``: the episode is over."""
        return self._submit("reset", seed=self.seed) if self._starts() else None

    def submit_feed(self, completion: Completion) -> Outcome[Any] | None:
        """Begin `feed` where the environment lives; ``None``: the episode is over.

        Raises:
            EpisodeStateError: as `feed`.
            ValueError: as `feed`.
        """
        sent = self._sent(completion)
        return None if sent is None else self._submit("step", sent)

    def receive(self, future: Outcome[Any]) -> list[int] | None:
        """End what `submit_start` or `submit_feed` began; return what `start` and `feed` return.

        The environment is not closed at the end of the episode.
        """
        env = self._required_remote_env()
        return self._continue(lambda: env.receive(future))

    def submit_close(self) -> Outcome[Any]:
        """Begin to close the environment where it lives, for an episode that `needs_close`."""
        env = self._required_remote_env()
        self._closed = True
        return env.submit("close")

    def receive_close(self, future: Outcome[Any]) -> None:
        """End what `submit_close` began."""
        error = future.exception()
        if error is not None:
            self._close_failed(error)

    def abort(
        self,
        reason: StopReason = StopReason.ABORTED,
        error: str | None = None,
        *,
        close: bool = True,
    ) -> None:
        """End the episode now; it may be called while another thread is inside `feed`.

        Args:
            reason: why it ends.
            error: what went wrong, for `Episode.error`.
            close: also close the environment, unless another thread is inside it: that thread
                closes it when it returns. With ``False`` the caller must call `close`.
        """
        with self._lock:
            if not self._over:
                self._end(reason, error)
            if self._submitted is not None:  # a call elsewhere is given up: it can be closed
                self._spent(self._submitted)
                self._submitted = None
                self._busy = False
        if close:
            self.close()

    def close(self) -> None:
        """Close the environment of an episode that is over, once; blocks until it is closed."""
        with self._lock:
            if not self.needs_close:
                return
            self._closed = True
        try:
            self.env.close()
        except BaseException as error:
            if is_interruption(error):
                raise
            self._close_failed(error)

    def add_seconds(self, kind: str, seconds: float) -> None:
        """Add wall time to the episode's total for ``kind`` (``"env"`` or ``"policy"``)."""
        spent = self._episode.seconds
        spent[kind] = spent.get(kind, 0.0) + seconds

    @property
    def remote_env(self) -> RemoteCallsEnv | None:
        """The environment, if it lives in a worker process or behind a server."""
        return self.env if isinstance(self.env, RemoteCallsEnv) else None

    def _required_remote_env(self) -> RemoteCallsEnv:
        env = self.remote_env
        if env is None:
            raise EpisodeStateError(
                f"{self.env_id} lives in this process: call start() and feed()."
            )
        return env

    # -- inside one turn ---------------------------------------------------------------------

    def _starts(self) -> bool:
        """Return whether the episode begins; it may have been aborted before."""
        if self._started:
            raise EpisodeStateError("start() was called before; make a new machine per episode.")
        self._started = True
        return not self._over

    def _sent(self, completion: Completion) -> str | None:
        """Record a completion; return what the environment gets, ``None`` = it was aborted."""
        if not self._started or self._over:
            raise EpisodeStateError("feed() needs an episode that has started and is not over.")
        if completion.finish_reason is FinishReason.ABORT:
            self._end(StopReason.ABORTED, "the engine aborted the request")
            return None
        turn = self._accept(completion)
        cut = turn.finish_reason is FinishReason.LENGTH
        return "" if cut and self.limits.cut_action == "invalid" else turn.action

    def _submit(self, method: str, *arguments: Any, **named: Any) -> Outcome[Any]:
        env = self._required_remote_env()
        self._busy = True
        self._submitted = time.perf_counter()
        return env.submit(method, *arguments, **named)

    def _continue(self, answer: Callable[[], Any]) -> list[int] | None:
        """Get the environment's answer to a reset or a step; continue the episode from there."""
        turn = self._pending_turn
        self._busy = True
        began = self._submitted or time.perf_counter()
        self._submitted = None
        try:
            result = answer()
            proceed = (
                partial(self._begin, *check_reset(result))
                if turn is None
                else partial(self._advance, turn, *check_step(result))
            )
        except WorkerPoolError:  # no fault of this environment: it stops the run
            self._busy = False
            raise
        except EnvDeadlineError as error:
            return self._fail(StopReason.DEADLINE, str(error))
        except BaseException as error:
            if is_interruption(error):
                self._busy = False
                raise
            return self._fail(StopReason.ENV_ERROR, self._described(error))
        finally:
            self._spent(began)
        with self._lock:
            self._busy = False
            return None if self._over else proceed()

    def _begin(self, observation: str, info: dict[str, Any]) -> list[int] | None:
        """Build the first prompt."""
        self._observation = observation
        self._info = info
        text = self.context.start(observation, info)
        ids = self._encode(text)
        self._prompt_text = self.context.plain(text)
        self._episode.segments.append(Segment())
        self._segment().add_context(ids)
        return self._next_prompt()

    def _accept(self, completion: Completion) -> Turn:
        """Record the sampled tokens as a turn.

        The engine's report that the policy stopped is trusted, even if the last token is none of
        the tokenizer's stop ids. A stop token is not part of the text.
        """
        tokenizer = self.context.tokenizer
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
            self._turn_closed = ends_in_stop and self.context.closes(ids[-1])
            self._segment().add_action(self.turn, completion)
        self._generated += len(ids)
        self._prompt_text += text
        turn = Turn(
            self.turn,
            self._observation,
            text,
            finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
        )
        self._episode.turns.append(turn)
        self._pending_turn = turn
        return turn

    def _check(self, completion: Completion) -> None:
        count = len(completion.token_ids)
        cap = self.max_tokens
        if not 1 <= count <= cap:
            raise ValueError(f"The engine returned {count} tokens; 1 to {cap} were requested.")
        if completion.logprobs is not None and len(completion.logprobs) != count:
            raise ValueError(
                f"The engine returned {len(completion.logprobs)} logprobs for {count} tokens."
            )

    def _advance(
        self,
        turn: Turn,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> list[int] | None:
        """Record the result of the environment's step and build the next prompt."""
        self._pending_turn = None
        turn.reward = reward
        turn.info = info
        turn.terminated = terminated
        turn.truncated = truncated
        self._observation = observation
        self._info = info
        if terminated or truncated:
            return self._finish(stop_reason(terminated, info))
        if self.limits.max_turns is not None and self.turn >= self.limits.max_turns:
            return self._finish(StopReason.TRUNCATED_TURNS)
        extension = self.context.extend(turn.action, self._turn_closed, observation, info)
        ids = self._encode(extension.text)
        if extension.fresh:
            self._prompt_text = self.context.plain(extension.text)
            self._episode.segments.append(Segment())
        else:
            self._prompt_text += self.context.plain(extension.text)
            self._generated += len(ids)
        self._segment().add_context(ids)
        return self._next_prompt()

    def _next_prompt(self) -> list[int] | None:
        """Return the ids that the policy must continue, ``None`` when no token is left."""
        _, in_context, in_episode = self._token_budgets()
        if in_context < 1:
            return self._finish(StopReason.CONTEXT_OVERFLOW)
        if in_episode < 1:
            return self._finish(StopReason.TRUNCATED_TOKENS)
        return list(self._segment().token_ids)

    def _token_budgets(self) -> tuple[int, int, int]:
        """Return the tokens left for the next action in the turn, the context and the episode."""
        in_turn = self.limits.max_tokens_per_turn
        in_context = in_turn
        in_episode = in_turn
        if self.limits.max_context_tokens is not None:
            in_context = self.limits.max_context_tokens - len(self._segment().token_ids)
        if self.limits.max_episode_tokens is not None:
            in_episode = self.limits.max_episode_tokens - self._generated
        return in_turn, in_context, in_episode

    # -- the end -----------------------------------------------------------------------------

    def _fail(self, reason: StopReason, what: str) -> list[int] | None:
        """End the episode because the environment failed; return ``None``: no prompt follows."""
        with self._lock:
            self._busy = False
            if not self._over:
                self._finish(reason, self._placed(what))
        return None

    def _placed(self, what: str) -> str:
        """Return an error with the environment and the seed."""
        return f"{self.env_id}, seed {self.seed}: {what}"

    def _close_failed(self, error: BaseException) -> None:
        self._episode.error = self._episode.error or f"close: {self._described(error)}"

    def _finish(self, reason: StopReason, error: str | None = None) -> list[int] | None:
        """End the episode; return ``None``: there is no next prompt."""
        self._end(reason, error)
        return None

    def _end(self, reason: StopReason, error: str | None = None) -> None:
        """Fill in the end of the episode; the environment is closed outside the lock."""
        episode = self._episode
        episode.stop_reason = reason
        episode.error = error
        episode.final_observation = self._observation
        self._last_ids = list(episode.segments[-1].token_ids) if episode.segments else []
        trim(episode)
        if episode.turns:
            last = episode.turns[-1]
            last.truncated = last.truncated or reason.truncated
            episode.success = not reason.failed and bool(last.info.get("success", False))
        if reason.failed:
            if self._pending_turn is not None:
                exclude_turn(episode, self._pending_turn)
            if not self.limits.train_on_failed:
                episode.exclude()
        self._over = True

    def _closed_at_end(self, prompt: list[int] | None) -> list[int] | None:
        """Return ``prompt``; without one, close the environment first."""
        if prompt is None:
            self.close()
        return prompt

    # -- helpers ------------------------------------------------------------------------

    @staticmethod
    def _described(error: BaseException) -> str:
        return f"{error_line(error)}{remote_place(error)}"

    def _segment(self) -> Segment:
        return self._episode.segments[-1]

    def _encode(self, text: str) -> list[int]:
        return self.context.tokenizer.encode(text) if self.context.tokenizer else []

    def _spent(self, began: float) -> None:
        self.add_seconds("env", time.perf_counter() - began)


def _check_arguments(env: Any, context: Any, limits: Any, seed: Any) -> None:
    hint = "gem_core.make(id) returns one."
    require_methods("EpisodeMachine(env)", env, ("reset", "step", "close"), hint)
    require_kind("EpisodeMachine(context)", context, Context, "Context(template, tokenizer).")
    require_kind("EpisodeMachine(limits)", limits, (Limits, type(None)), "Limits(max_turns=...).")
    if seed is not None:
        require_methods("EpisodeMachine(seed=)", seed, ("__index__",), "It is an integer, or None.")
