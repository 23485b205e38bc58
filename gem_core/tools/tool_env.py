"""`ToolEnv`: an environment whose agent may call tools before it acts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_core.env.interface import Env, Wrapper
from gem_core.env.parsing import get_parser, render
from gem_core.env.states import check_data
from gem_core.errors import EpisodeStateError, KindError, StateError, error_line, is_interruption
from gem_core.tools.base import Call, Tool, ToolResult
from gem_core.tools.formats import FORMATS, first_broken_call

if TYPE_CHECKING:
    from gem_core.env.interface import ResetResult, State, StepResult

_CHARACTERS = 4
"""Characters of a token, where no tokenizer counts them."""


class Budget(NamedTuple):
    """What the tools may use in one episode.

    Attributes:
        calls: number of calls.
        per_turn: number of calls in one action; what follows is not read.
        output_tokens: tokens of one result; the middle of a longer one is left out.
        seconds: wall seconds of all calls together.
    """

    calls: int = 8
    per_turn: int = 1
    output_tokens: int = 512
    seconds: float = 60.0


class ToolRewards(NamedTuple):
    """Rewards for calls, added to the environment's own.

    Attributes:
        call: for each call that succeeds.
        failed_call: for each call that fails.
    """

    call: float = 0.0
    failed_call: float = 0.0


class ToolEnv(Wrapper):
    """An environment with tools.

    An action that has a call is not passed to the inner environment: the observation is the result.
    Without a call, or when the budget is used up, the action is passed on. A call that fails is an
    observation too. ``info`` has ``tool_calls``, ``tool_failures``, ``tool_seconds`` and, after a
    call, ``tool``: name, ok, error, seconds, truncated and what the tool adds.

    Args:
        env: the inner environment.
        tools: the tools; their names differ.
        budget: what they may use.
        rewards: rewards for calls.
        end_on_failure: whether a failed call ends the episode, without success.
        instructions: whether the first observation describes the tools.
        native: whether the chat template describes the tools (`functions`) and puts results into
            messages of the role ``tool``: results are then as the tools return them, with
            ``info["role"] = "tool"``, and there are no instructions.
        answer_format: how the agent writes its answer, ``"tag"`` or ``"boxed"``; it is then passed
            on in the inner environment's own format. ``None``: actions are passed on as they are.
        count_tokens: counts the tokens of a text; ``None``: one for every four characters.

    Raises:
        ValueError: there is no tool, two have one name, or a budget is negative.
        KindError: a tool is no `Tool`, or lacks one of its attributes.
    """

    _state_fields = ("calls", "failures", "seconds", "running")
    calls: int
    failures: int
    seconds: float
    running: bool

    def __init__(
        self,
        env: Env,
        tools: Sequence[Tool],
        *,
        budget: Budget | None = None,
        rewards: ToolRewards | None = None,
        end_on_failure: bool = False,
        instructions: bool = True,
        native: bool = False,
        answer_format: str | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ):
        if isinstance(tools, (Tool, str)) or not all(isinstance(tool, Tool) for tool in tools):
            raise KindError(
                f"ToolEnv takes a list of Tool objects, not {tools!r:.80}: for example "
                "[make_tool('python')] of gem_core.tools."
            )
        for tool in tools:
            _require_attributes(tool)
        super().__init__(env)
        self.tools = {tool.name: tool for tool in tools}
        self.budget = budget or Budget()
        self.rewards = rewards or ToolRewards()
        self.end_on_failure = end_on_failure
        self.instructions = instructions and not native
        self.native = native
        self.calls = 0
        self.failures = 0
        self.seconds = 0.0
        self.running = False
        self._answer_format = answer_format
        self._parse_answer = None if answer_format is None else get_parser(answer_format)
        self.count_tokens = count_tokens or _approximate_tokens
        self._sessions: dict[str, Any] | None = None
        if not tools or len(self.tools) < len(tools):
            raise ValueError("ToolEnv needs at least one tool, and each needs a name of its own.")
        if min(self.budget) < 0:
            raise ValueError(f"A budget cannot be negative: {self.budget}.")

    @property
    def slow(self) -> bool:  # type: ignore[override]
        """Whether a step may block: a tool or the inner environment does."""
        return self.env.slow or any(tool.slow for tool in self.tools.values())

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The tools as chat templates take them (``tools=`` of `apply_chat_template`)."""
        return [tool.function for tool in self.tools.values()]

    @property
    def stops(self) -> list[str]:
        """The texts at which a call is complete: generation may stop there."""
        pairs = [(tool, name) for tool in self.tools.values() for name in tool.formats]
        return list(dict.fromkeys(FORMATS[name].stop(tool) for tool, name in pairs))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> ResetResult:
        """Start an episode; the observation ends with the instructions."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._stop_sessions()
        self._sessions = self._assign_sessions({t.name: t.start() for t in self._owners()})
        self.calls = 0
        self.failures = 0
        self.seconds = 0.0
        self.running = True
        if self.instructions:
            obs = f"{obs}\n\n{self._describe_tools()}"
        return obs, {**info, **self._counters()}

    def step(self, action: str) -> StepResult:
        """Run the calls of an action, or pass it on if it has none."""
        calls = self._find(action) if isinstance(action, str) and self.running else []
        if calls:
            return self._run_calls(calls)
        if not self.running and self._sessions is not None:
            raise EpisodeStateError("The episode is over: call reset() before the next step().")
        obs, reward, terminated, truncated, info = self.env.step(self._convert_answer(action))
        self.running = not (terminated or truncated)
        return obs, reward, terminated, truncated, {**info, **self._counters()}

    def close(self) -> None:
        """Close the inner environment and end what the tools keep."""
        self.running = False
        try:
            self._stop_sessions()
        finally:
            self.env.close()

    def get_state(self) -> State:
        """Return the state, with what the tools keep of the episode."""
        sessions = self._sessions
        saved = None
        if sessions is not None:
            saved = {tool.name: tool.save(sessions[tool.name]) for tool in self._owners()}
        return {**super().get_state(), "tools": saved}

    def set_state(self, state: State) -> None:
        """Restore a state that `get_state` of an environment with the same tools returned."""
        super().set_state(state)
        self._stop_sessions()
        saved = state["tools"]
        if saved is not None:
            self._sessions = self._assign_sessions(
                {t.name: t.load(saved[t.name]) for t in self._owners()}
            )

    def _check_state(self, state: State) -> None:
        super()._check_state(state)
        saved = state.get("tools")
        check_data(saved)
        names = {tool.name for tool in self._owners()}
        if saved is None:
            if state["fields"]["running"]:
                raise StateError("The state of a running episode has that of its tools.")
        elif not isinstance(saved, dict) or set(saved) != names:
            raise StateError(f"The state of the tools is that of {', '.join(sorted(names))}.")
        else:
            for tool in self._owners():
                tool.check(saved[tool.name])

    def _find(self, action: str) -> list[Call]:
        """Return the calls that are to be run, in their order."""
        calls: list[Call] = []
        position = 0
        left = min(self.budget.per_turn, self.budget.calls - self.calls)
        if self.seconds >= self.budget.seconds:
            left = 0
        while len(calls) < left:
            call = self._first_call(action[position:])
            if call is None:
                break
            calls.append(call)
            position += call.end
        return calls

    def _first_call(self, text: str) -> Call | None:
        calls = [call for tool in self.tools.values() if (call := tool.parse(text)) is not None]
        if any("tool_call" in tool.formats for tool in self.tools.values()):
            broken = first_broken_call(text, list(self.tools))
            if broken is not None:
                where, problem = broken
                calls.append(Call("", {}, where.start, where.end, "tool_call", problem))
        return min(calls, key=lambda call: call.start, default=None)

    def _run_calls(self, calls: list[Call]) -> StepResult:
        texts = []
        reward = 0.0
        results = []
        for call in calls:
            result = self._run(call)
            results.append(self._note(call, result))
            self.calls += 1
            self.failures += not result.ok
            self.seconds += result.seconds
            reward += self.rewards.call if result.ok else self.rewards.failed_call
            text = self._shorten(result.text)
            if not self.native:
                text = FORMATS[call.format].result(text, self.tools.get(call.tool))
            texts.append(text)
        failed = not all(noted["ok"] for noted in results)
        terminated = self.end_on_failure and failed
        self.running = not terminated
        info = {**self._counters(), "tool": results[-1]}
        if self.native:
            info["role"] = "tool"
        if len(results) > 1:
            info["tools"] = results
        if terminated:
            info |= {"success": False, "end": "tool_failure"}
        return "\n".join(texts) + self._left(), reward, terminated, False, info

    def _run(self, call: Call) -> ToolResult:
        if call.problem:
            return ToolResult(f"[The call was not run: {call.problem}.]", "invalid_call")
        assert self._sessions is not None
        started = time.monotonic()
        left = self.budget.seconds - self.seconds
        try:
            result = self.tools[call.tool].run(call, self._sessions[call.tool], left)
        except BaseException as error:  # an agent's episode does not end because a tool is broken
            if is_interruption(error):
                raise
            text = f"[The tool failed: {error_line(error):.300}]"
            return ToolResult(text, "tool_exception", time.monotonic() - started)
        if not isinstance(result, ToolResult):
            raise KindError(
                f"The tool {call.tool!r} returned {result!r:.60}: run() returns a ToolResult, such "
                "as ToolResult('what the agent is told')."
            )
        return result

    def _note(self, call: Call, result: ToolResult) -> dict[str, Any]:
        tokens = self.count_tokens(result.text)
        return {
            "name": call.tool,
            "ok": result.ok,
            "error": result.error,
            "seconds": result.seconds,
            "truncated": result.truncated or tokens > self.budget.output_tokens,
            **result.fields,
        }

    def _shorten(self, text: str) -> str:
        """Leave out the middle of a text that has more tokens than a result may have."""
        tokens = self.count_tokens(text)
        most = self.budget.output_tokens
        kept = len(text)
        while tokens > most and kept > 0:
            kept = min(kept - 1, int(kept * most / tokens))
            shorter = _without_middle(text, kept)
            tokens = self.count_tokens(shorter)
        return text if kept == len(text) else _without_middle(text, kept)

    def _left(self) -> str:
        """Tell an agent that has no call left."""
        if self.calls < self.budget.calls and self.seconds < self.budget.seconds:
            return ""
        return "\n[No tool call is left.]"

    def _counters(self) -> dict[str, Any]:
        return {
            "tool_calls": self.calls,
            "tool_failures": self.failures,
            "tool_seconds": self.seconds,
        }

    def _describe_tools(self) -> str:
        lines = [f"You may use tools, up to {self.budget.calls} times, before you answer."]
        for tool in self.tools.values():
            lines.append(f"{tool.name}: {tool.description} Write a call as")
            lines.append(tool.example(tool.formats[0]))
        lines.append("The result is given to you in the next message.")
        return "\n".join(lines)

    def _convert_answer(self, action: str) -> str:
        """Return an action in the inner environment's own format of answers."""
        if self._parse_answer is None or not isinstance(action, str):
            return action
        answer = self._parse_answer(action)
        inner = str(getattr(self.env, "answer_format", "plain"))
        return action if answer is None else render(answer, inner)

    def _stop_sessions(self) -> None:
        if self._sessions is not None:
            sessions, self._sessions = self._sessions, None
            self._stop_each(sessions)

    def _stop_each(self, sessions: dict[str, Any]) -> None:
        """Stop the sessions of all tools, also after one that fails to; then raise its error."""
        with ExitStack() as stack:
            for tool in reversed(self._owners()):
                stack.callback(tool.stop, sessions[tool.name])

    def _owners(self) -> list[Tool]:
        """Return the tools that start sessions: of those that share one, the first."""
        return [tool for tool in self.tools.values() if self._owner(tool) is tool]

    def _owner(self, tool: Tool) -> Tool:
        others = [o for o in self.tools.values() if o.shares == tool.shares is not None]
        return others[0] if others else tool

    def _assign_sessions(self, sessions: dict[str, Any]) -> dict[str, Any]:
        """Return the session of every tool, given those of the owners."""
        return {name: sessions[self._owner(tool).name] for name, tool in self.tools.items()}


def _require_attributes(tool: Tool) -> None:
    """Check that a tool has what a subclass of `Tool` must set."""
    for name in ("name", "description", "schema", "tag"):
        if not hasattr(tool, name):
            raise KindError(
                f"The tool {type(tool).__name__} has no {name}: a Tool has the attributes name, "
                "description, schema and tag."
            )


def _approximate_tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS)


def _without_middle(text: str, kept: int) -> str:
    """Return the first three quarters and the last quarter of ``kept`` characters."""
    mark = f"\n[... {len(text) - kept} characters are left out ...]\n"
    last = kept // 4
    end = text[-last:] if last else ""
    return text[: kept - last] + mark + end
