"""How observations become the texts that a policy reads: a context has a template and a history.

An append-only history tokenises each observation once, by itself, and never changes sampled tokens
(token in, token out). ``compact`` is append-only until its prompt passes a budget: the policy then
sums up the turns so far, and a new segment begins with that. The other histories rewrite the
prompt, so each turn begins a new segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from gem_core.episodes.chat import ChatRenderer, same_text
from gem_core.episodes.compact import Compact
from gem_core.episodes.special_tokens import SpecialTokens
from gem_core.episodes.templates import SLOT, TEMPLATES, Template, chat_template, get_template
from gem_core.episodes.tokenizers import HFTokenizer, Tokenizer
from gem_core.errors import RecipeError, require_kind, require_methods, unknown

__all__ = [
    "TEMPLATES",
    "Compact",
    "Context",
    "Extension",
    "HFTokenizer",
    "History",
    "Template",
    "Tokenizer",
    "chat_template",
    "get_template",
    "with_suffix",
]

History = Literal["append", "last", "window", "concat", "concat_with_action", "compact"]
_GET_TEMPLATE = "gem_core.episodes.context.get_template(name, tokenizer) returns one."
_WRAP_TOKENIZER = "HFTokenizer(tokenizer, template) makes one of a Hugging Face tokenizer."


class Extension(NamedTuple):
    """What a turn adds to the prompt: a text to encode, and whether it replaces the prompt."""

    text: str
    fresh: bool


@dataclass
class Context:
    """Renders the prompts of one episode.

    Attributes:
        template: the texts around the observations.
        tokenizer: ``None`` where prompts are used only as text or as messages.
        history: ``append`` (token in, token out), or a prompt that is rewritten each turn: ``last``
            (instructions and the current observation), ``window`` (instructions and the last
            ``window`` turns), ``concat`` (all observations), ``concat_with_action``; or
            ``compact`` (instructions, summary, and all turns since).
        window: number of past turns kept by ``window``.
        compact: when and how ``compact`` asks for a summary.

    Raises:
        KindError: an argument is of another kind.
        RecipeError: there is no such history, or ``window``, ``compact`` or the tokenizer does not
            fit it.
    """

    template: Template
    tokenizer: Tokenizer | None = None
    history: History = "append"
    window: int | None = None
    compact: Compact | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    _events: list[tuple[str, str]] = field(default_factory=list)
    _instructions: str = ""
    _rendered: str = ""
    _special: SpecialTokens | None = None
    _close_id: int | None = None

    def __post_init__(self) -> None:
        require_kind("Context(template)", self.template, Template, _GET_TEMPLATE)
        if self.tokenizer is not None:
            needed = ("encode", "decode", "stop_ids")
            require_methods("Context(tokenizer=)", self.tokenizer, needed, _WRAP_TOKENIZER)
        require_kind("Context(window=)", self.window, (int, type(None)))
        if self.history not in get_args(History):
            raise unknown("history", str(self.history), get_args(History))
        if (self.history == "window") != (self.window is not None):
            raise RecipeError("history='window' and window=<number of turns> go together.")
        require_kind("Context(compact=)", self.compact, (Compact, type(None)))
        if (self.history == "compact") != (self.compact is not None):
            raise RecipeError("history='compact' and compact=Compact(budget=...) go together.")
        if self.compact is not None and self.tokenizer is None:
            raise RecipeError("history='compact' counts tokens: give a tokenizer, too.")
        if isinstance(self.tokenizer, HFTokenizer):
            self._special = self.tokenizer.special
            if self.template.close_opens:
                self._close_id = self.tokenizer.encode(self.template.close)[-1]

    def start(self, observation: str, info: dict[str, Any]) -> str:
        """Begin an episode; return the first prompt as a text to encode (see `plain`)."""
        self._instructions = observation
        self._events = []
        return self._begin(with_suffix(observation, info))

    def _begin(self, content: str) -> str:
        """Begin the conversation with one message; return the prompt."""
        self.messages = [{"role": "user", "content": content}]
        self._rendered = self.template.first.replace(SLOT, self._guard(content))
        return self._rendered

    def closes(self, stop_id: int) -> bool:
        """Return whether an action that ends with ``stop_id`` needs no closing text."""
        return self._close_id is None or stop_id == self._close_id

    def plain(self, text: str) -> str:
        """Return a text to encode in its readable form.

        With a Hugging Face tokenizer, the texts to encode have marks in place of special tokens
        that an environment or a policy spelt, so that they become letters.
        """
        return text if self._special is None else self._special.unguard(text)

    def extend(
        self, action: str, stopped: bool, observation: str, info: dict[str, Any]
    ) -> Extension:
        """Add an action and the observation that follows it.

        Args:
            action: decoded action text.
            stopped: whether the sampled tokens end with a token that closes the turn.
            observation: the environment's observation after the action.
            info: its info; ``info["suffix"]`` is the current state as text, and ``info["role"]`` is
                ``"tool"`` where the observation is the result of a native tool call.
        """
        if self.history in ("append", "compact"):
            return self._append(action, stopped, with_suffix(observation, info), info.get("role"))
        self._events.append((action, observation))
        return Extension(self._begin(with_suffix(self._rewrite(), info)), fresh=True)

    def try_extend(
        self, action: str, stopped: bool, observation: str, info: dict[str, Any]
    ) -> Extension:
        """Return what `extend` would, and leave the conversation as it is; not for histories that
        are rewritten."""
        before = self.messages, self._rendered
        self.messages = list(self.messages)
        extension = self.extend(action, stopped, observation, info)
        self.messages, self._rendered = before
        return extension

    def fold(self, summary: str, observation: str, info: dict[str, Any]) -> str:
        """Begin the conversation again with a summary; return the prompt as a text to encode.

        The summary has not seen the observation, which is the environment's last; ``info`` is as of
        `extend`.
        """
        parts = [self._instructions, summary, with_suffix(observation, info)]
        return self._begin("\n".join(parts))

    def _append(self, action: str, stopped: bool, shown: str, role: Any) -> Extension:
        """Add an action and what is shown after it to the conversation."""
        of_tool = bool(self.template.tool) and role == "tool"
        self.messages += [
            {"role": "assistant", "content": action},
            {"role": "tool" if of_tool else "user", "content": shown},
        ]
        after = self.template.tool if of_tool else self.template.next
        text = after.replace(SLOT, self._guard(shown))
        extension = Extension(text if stopped else self.template.close + text, fresh=False)
        if self.template.renderer is None:
            return extension
        return self._render_again(self.template.renderer, action, text, extension)

    def _render_again(
        self, render: ChatRenderer, action: str, text: str, extension: Extension
    ) -> Extension:
        """Return ``extension``, or the whole conversation where the chat template rewrites it."""
        expected = f"{self._rendered}{self._guard(action)}{self.template.close}{text}"
        guarded = [{**m, "content": self._guard(m["content"])} for m in self.messages]
        whole = render(guarded)
        if same_text(whole, expected):
            self._rendered = expected
            return extension
        self._rendered = whole
        return Extension(whole, fresh=True)

    def _guard(self, text: str) -> str:
        return text if self._special is None else self._special.guard(text)

    def _rewrite(self) -> str:
        """Return the instructions and the part of the history that the mode keeps."""
        keep = {"last": 1, "window": (self.window or 0) + 1}.get(self.history, len(self._events))
        with_actions = self.history in ("window", "concat_with_action")
        parts = [self._instructions]
        kept = self._events[max(0, len(self._events) - keep) :]
        for number, (action, observation) in enumerate(kept):
            # The oldest observation of a window follows an action that is no longer shown.
            oldest_cut = self.history == "window" and number == 0 and len(kept) < len(self._events)
            if with_actions and not oldest_cut:
                parts.append(action)
            parts.append(observation)
        return "\n".join(parts)


def with_suffix(observation: str, info: dict[str, Any]) -> str:
    """Return the observation and, on the next line, the current state (``info["suffix"]``)."""
    suffix = info.get("suffix")
    return f"{observation}\n{suffix}" if suffix else observation
