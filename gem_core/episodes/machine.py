"""The episode machine: a state machine over one environment and one context, without I/O.

    machine = EpisodeMachine(env, context, limits, seed=7)
    prompt_ids = machine.start()
    while prompt_ids is not None:
        prompt_ids = machine.feed(engine(prompt_ids, machine.max_tokens))
    episode = machine.episode

The machine calls the environment, measures it and closes it. What is recorded of the episode, and
how it goes on, is in `gem_core.episodes.state`; prompts, tokens and masks in `transcript`; calls of
environments that live elsewhere in `machine_calls`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from gem_core.env.interface import Env
from gem_core.env.remote.errors import WorkerPoolError
from gem_core.episodes.context import Context
from gem_core.episodes.data import Episode, StopReason
from gem_core.episodes.endings import describe_failure, record_close_error
from gem_core.episodes.limits import Limits
from gem_core.episodes.state import EpisodeState
from gem_core.errors import is_interruption, require_kind, require_methods

if TYPE_CHECKING:
    from collections.abc import Callable

    from gem_core.episodes.data import Completion
    from gem_core.episodes.request_seed import Split

__all__ = ["EpisodeMachine", "Limits"]


class EpisodeMachine(EpisodeState):
    """Plays one episode from the completions that it gets; see the module docstring.

    It is not reentrant: make one call at a time. Only `abort` may be called from another thread
    while `feed` waits for the environment; the late result is then dropped.

    A caller that does not wait for the environment calls the halves of `start` and `feed`: `begin`
    or `accept`, then `resume`, or `ready` where there is no action to play. It closes the
    environment itself, see `machine_calls`.

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
        spec = getattr(env, "spec", None)
        env_id = env_id or (spec.id if spec else type(env).__name__)
        episode = Episode(env_id, seed, group=group, index=index)
        super().__init__(episode, context, limits or Limits(), run_seed, split)
        self.env = env
        self._busy = False  # a thread is inside the environment
        self._closed = False
        self._lock = threading.RLock()

    @property
    def needs_close(self) -> bool:
        """Whether the episode is over, but its environment is not closed and not in a call."""
        return self._over and not self._busy and not self._closed

    def start(self) -> list[int] | None:
        """Reset the environment; return the first prompt's ids, or ``None`` if that failed."""
        prompt = self.resume(lambda: self.env.reset(seed=self.seed)) if self.begin() else None
        if prompt is None:
            self.close()
        return prompt

    def feed(self, completion: Completion) -> list[int] | None:
        """Play the current prompt's completion; return the next prompt's ids, ``None`` at the end.

        Raises:
            EpisodeStateError: the episode has not started or is over.
            ValueError: the completion has no tokens, more than `max_tokens`, or not one
                log-probability, or not one support, per token.
        """
        action = self.accept(completion)
        prompt = self.ready if action is None else self.resume(lambda: self.env.step(action))
        if prompt is None:
            self.close()
        return prompt

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
        if close:
            self.close()

    def close(self) -> None:
        """Close the environment of an episode that is over, once; blocks until it is closed."""
        if not self.claim_close():
            return
        try:
            self.env.close()
        except BaseException as error:
            if is_interruption(error):
                raise
            record_close_error(self._episode, error)

    def resume(self, answer: Callable[[], Any]) -> list[int] | None:
        """Go on with what the environment answers to a reset or a step, as `start` and `feed` do.

        ``answer`` returns what the environment returned, or raises what it raised. At the end of
        the episode there is no next prompt, and the environment is left open.
        """
        self._busy = True
        began = time.perf_counter()
        try:
            proceed = self._read_answer(answer())
        except BaseException as error:
            if is_interruption(error) or isinstance(error, WorkerPoolError):
                self._busy = False  # no fault of this environment: it stops the run
                raise
            self._fail(error)
            return None
        finally:
            self.add_seconds("env", time.perf_counter() - began)
        with self._lock:
            self._busy = False
            return None if self._over else proceed()

    def claim_close(self) -> bool:
        """Return whether the caller must close the environment now; only one caller must."""
        with self._lock:
            if not self.needs_close:
                return False
            self._closed = True
            return True

    def _fail(self, error: BaseException) -> None:
        """End the episode because its environment failed, unless it is over already."""
        reason, text = describe_failure(error)
        with self._lock:
            self._busy = False
            if not self._over:
                self._end(reason, f"{self.env_id}, seed {self.seed}: {text}")


def _check_arguments(env: Any, context: Any, limits: Any, seed: Any) -> None:
    hint = "gem_core.make(id) returns one."
    require_methods("EpisodeMachine(env)", env, ("reset", "step", "close"), hint)
    require_kind("EpisodeMachine(context)", context, Context, "Context(template, tokenizer).")
    require_kind("EpisodeMachine(limits)", limits, (Limits, type(None)), "Limits(max_turns=...).")
    if seed is not None:
        require_methods("EpisodeMachine(seed=)", seed, ("__index__",), "It is an integer, or None.")
