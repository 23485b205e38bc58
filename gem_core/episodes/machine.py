"""The episode machine: one environment, one context, no waiting of its own (sans-IO).

    machine = EpisodeMachine(env, context, limits, seed=7)
    prompt_ids = machine.start()
    while prompt_ids is not None:
        prompt_ids = machine.feed(engine(prompt_ids, machine.max_tokens))
    episode = machine.episode

Prompt building, truncation, masking, reward placement and seeding exist here and nowhere else.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Literal

import msgspec

from gem_core.core import Env
from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, Episode, FinishReason, Segment, StopReason, Turn
from gem_core.errors import EpisodeStateError

__all__ = ["EpisodeMachine", "Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on one episode, all from outside the task."""

    max_tokens_per_turn: int = 4096
    """Tokens the policy may sample in one turn."""
    max_turns: int | None = None
    """Turns in an episode; None leaves it to the environment."""
    max_context_tokens: int | None = None
    """Prompt plus completion of any turn: the model's context."""
    max_episode_tokens: int | None = None
    """Tokens after the first prompt, actions and observations, in the whole episode."""
    turn_deadline_s: float | None = None
    """Wall seconds one environment step may take; None = 60 for slow environments, else none."""
    episode_deadline_s: float | None = None
    """Wall seconds of a whole episode, generation included."""
    cut_action: Literal["invalid", "pass"] = "invalid"
    """An action cut off at the token cap: the environment gets "" (``invalid``) or the text."""
    train_on_failed: bool = False
    """Train on episodes that broke (environment error, deadline, abort) up to where they broke."""


class EpisodeMachine:
    """Plays one episode when fed completions; see the module's docstring.

    Not reentrant: one call at a time. `abort` may come from another thread while
    `feed` waits for the environment; the late result is then dropped.
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
    ) -> None:
        self.env, self.context, self.limits = env, context, limits or Limits()
        spec = getattr(env, "spec", None)
        self._episode = Episode(
            env_id or (spec.id if spec else type(env).__name__), seed, group=group, index=index
        )
        self._observation = ""
        self._info: dict[str, Any] = {}
        self._generated = 0
        self._last_ids: list[int] = []
        self._prompt_text = ""
        self._started = self._over = self._busy = False
        self._pending_turn: Turn | None = None
        self._lock = threading.RLock()

    @property
    def done(self) -> bool:
        """True when the episode is over."""
        return self._over

    @property
    def episode(self) -> Episode:
        """The finished episode. Raises EpisodeStateError before the end."""
        if not self._over:
            raise EpisodeStateError("The episode is not over: feed() until it returns None.")
        return self._episode

    @property
    def turn(self) -> int:
        """0-based number of the turn that the next completion will be."""
        return len(self._episode.turns)

    @property
    def seed(self) -> int | None:
        """The seed of the episode."""
        return self._episode.seed

    @property
    def shown(self) -> tuple[str, dict[str, Any]]:
        """The latest observation and info, for scripted players."""
        return self._observation, self._info

    @property
    def index(self) -> int:
        """Position of the episode's task in the run, -1 outside a run."""
        return self._episode.index

    @property
    def prompt_text(self) -> str:
        """The prompt as text, for trainers that tokenise on their own."""
        return self._prompt_text

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages, for chat endpoints."""
        return self.context.messages

    @property
    def max_tokens(self) -> int:
        """How many tokens the next completion may have (≥ 1 while the episode runs)."""
        return min(self._token_budgets())

    def bootstrap_state(self) -> list[int]:
        """Ids of the state in which a limit cut the episode, for a critic to value.

        Empty for every other end, before any action, and where the state does not fit the context.
        """
        episode, limit = self.episode, self.limits.max_context_tokens
        if not episode.stop_reason.truncated or not episode.turns:
            return []
        ids = self._last_ids
        if ids == episode.segments[-1].token_ids:  # no prompt was made of the last answer
            last = episode.turns[-1]
            stopped = last.finish_reason is FinishReason.STOP
            answer = (last.action, stopped, episode.final_observation, last.info)
            text, fresh = self.context.extend(*answer)
            ids = [*([] if fresh else ids), *self._encode(text)]
        return ids if limit is None or len(ids) <= limit else []

    def start(self) -> list[int] | None:
        """Reset the environment; return the first prompt's ids, or None if that failed."""
        if self._started:
            raise EpisodeStateError("start() was called before; make a new machine per episode.")
        self._started = self._busy = True
        began = time.perf_counter()
        try:
            observation, info = self.env.reset(seed=self._episode.seed)
        except Exception as error:
            return self._finish(StopReason.ENV_ERROR, error=error)
        finally:
            self._spent(began)
        with self._lock:
            self._busy = False
            if self._over:
                return self._close()
            self._observation, self._info = observation, info
            self._prompt_text = self.context.start(observation, info)
            self._episode.segments.append(Segment())
            self._segment().add_context(self._encode(self._prompt_text))
            return self._next_prompt()

    def feed(self, completion: Completion) -> list[int] | None:
        """Take the current prompt's completion; return the next prompt's ids, None at the end.

        Raises:
            EpisodeStateError: the episode has not started or is over.
            ValueError: the completion breaks the engine's contract (no tokens, more than
                `max_tokens`, or not one log-probability per token).
        """
        if not self._started or self._over:
            raise EpisodeStateError("feed() needs a started episode that is not over.")
        if completion.finish_reason is FinishReason.ABORT:
            return self._finish(StopReason.ABORTED, "the engine aborted the request")
        turn, stopped = self._accept(completion)
        sent = turn.action
        if not stopped and self.limits.cut_action == "invalid":
            sent = ""
        self._busy = True
        began = time.perf_counter()
        try:
            result = self.env.step(sent)
        except Exception as error:
            return self._finish(StopReason.ENV_ERROR, error=error)
        finally:
            self._spent(began)
        with self._lock:
            self._busy = False
            if self._over:
                return self._close()
            return self._advance(turn, stopped, *result)

    def abort(self, reason: StopReason = StopReason.ABORTED, error: str | None = None) -> None:
        """End the episode now; safe while another thread is inside `feed`."""
        with self._lock:
            if not self._over:
                self._end(reason, error)
                if not self._busy:
                    self._close()

    def add_seconds(self, kind: str, seconds: float) -> None:
        """Add wall time to the episode's account of ``kind`` ("env" or "policy")."""
        spent = self._episode.seconds
        spent[kind] = spent.get(kind, 0.0) + seconds

    # -- inside one turn ---------------------------------------------------------------------

    def _accept(self, completion: Completion) -> tuple[Turn, bool]:
        """Record the sampled tokens as a turn; return it and whether a stop token ended it."""
        tokenizer, ids = self.context.tokenizer, completion.token_ids
        if tokenizer is None:
            text, stopped = completion.text or "", completion.finish_reason is FinishReason.STOP
        else:
            self._check(completion)
            stopped = ids[-1] in tokenizer.stop_ids
            text = tokenizer.decode(ids[:-1] if stopped else ids)
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
        return turn, stopped

    def _check(self, completion: Completion) -> None:
        count, cap = len(completion.token_ids), self.max_tokens
        if not 1 <= count <= cap:
            raise ValueError(f"The engine returned {count} tokens where 1 to {cap} were asked for.")
        if completion.logprobs is not None and len(completion.logprobs) != count:
            raise ValueError(f"{len(completion.logprobs)} logprobs came with {count} tokens.")

    def _advance(
        self,
        turn: Turn,
        stopped: bool,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: dict[str, Any],
    ) -> list[int] | None:
        """Book the environment's answer and build the next prompt."""
        self._pending_turn = None
        turn.reward, turn.info = float(reward), info
        turn.terminated, turn.truncated = bool(terminated), bool(truncated)
        self._observation, self._info = observation, info
        if terminated:
            wrong_format = info.get("error") == "invalid_format"
            reason = StopReason.INVALID_FORMAT if wrong_format else StopReason.TERMINATED
            return self._finish(StopReason(info.get("stop_reason", reason)))
        if truncated:
            return self._finish(StopReason(info.get("stop_reason", StopReason.TRUNCATED_TURNS)))
        if self.limits.max_turns is not None and self.turn >= self.limits.max_turns:
            return self._finish(StopReason.TRUNCATED_TURNS)
        extension = self.context.extend(turn.action, stopped, observation, info)
        ids = self._encode(extension.text)
        if extension.fresh:
            self._prompt_text = extension.text
            self._episode.segments.append(Segment())
        else:
            self._prompt_text += extension.text
            self._generated += len(ids)
        self._segment().add_context(ids)
        return self._next_prompt()

    def _next_prompt(self) -> list[int] | None:
        """The ids the policy must continue, or None when no room is left for an action."""
        *_, context_room, episode_room = self._token_budgets()
        if context_room < 1:
            return self._finish(StopReason.CONTEXT_OVERFLOW)
        if episode_room < 1:
            return self._finish(StopReason.TRUNCATED_TOKENS)
        return list(self._segment().token_ids)

    def _token_budgets(self) -> tuple[int, int, int]:
        """Tokens left for the next action: by the turn's cap, the context, the episode's budget."""
        cap, limits = self.limits.max_tokens_per_turn, self.limits
        context, budget = limits.max_context_tokens, limits.max_episode_tokens
        return (
            cap,
            cap if context is None else context - len(self._segment().token_ids),
            cap if budget is None else budget - self._generated,
        )

    # -- the end -----------------------------------------------------------------------------

    def _finish(
        self, reason: StopReason, message: str | None = None, error: Exception | None = None
    ) -> list[int] | None:
        """End the episode from inside start()/feed() and return "no further prompt"."""
        with self._lock:
            self._busy = False
            if not self._over:
                if error is not None:
                    message = f"{type(error).__name__}: {error}"
                self._end(reason, message)
        return self._close()

    def _end(self, reason: StopReason, error: str | None) -> None:
        episode = self._episode
        episode.stop_reason, episode.error = reason, error
        episode.final_observation = self._observation
        self._last_ids = list(episode.segments[-1].token_ids) if episode.segments else []
        self._trim()
        if episode.turns:
            last = episode.turns[-1]
            last.truncated = last.truncated or reason.truncated
            episode.success = not reason.failed and bool(last.info.get("success", False))
        if reason.failed:
            self._drop_pending_turn()
            if not self.limits.train_on_failed:
                episode.exclude()
        self._over = True

    def _trim(self) -> None:
        """Cut context that no action followed, so that a segment ends on an action token."""
        segments = self._episode.segments
        while len(segments) > 1 and not segments[-1].spans:
            segments.pop()
        if segments and segments[-1].spans:
            segment, end = segments[-1], segments[-1].spans[-1][2]
            del segment.token_ids[end:], segment.loss_mask[end:]
            if segment.logprobs is not None:
                del segment.logprobs[end:]

    def _drop_pending_turn(self) -> None:
        """Exclude an action that the environment never answered: it has no reward to learn from."""
        turn = self._pending_turn
        if turn is None:
            return
        turn.aborted = True
        for segment in self._episode.segments[-1:]:
            for number, start, end in segment.spans:
                if number == turn.index:
                    segment.loss_mask[start:end] = [0] * (end - start)

    def _close(self) -> list[int] | None:
        try:
            self.env.close()
        except Exception as error:
            self._episode.error = self._episode.error or f"close: {type(error).__name__}: {error}"
        return None

    # -- small things ------------------------------------------------------------------------

    def _segment(self) -> Segment:
        return self._episode.segments[-1]

    def _encode(self, text: str) -> list[int]:
        return self.context.tokenizer.encode(text) if self.context.tokenizer else []

    def _spent(self, began: float) -> None:
        self.add_seconds("env", time.perf_counter() - began)
