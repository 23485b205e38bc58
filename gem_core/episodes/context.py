"""How observations become the tokens that a policy reads: templates, tokenizers, histories.

An append-only history tokenises each observation once, by itself, and never changes sampled tokens
(token in, token out). The other histories rewrite the prompt, so each turn begins a new segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args

from gem_core.episodes.chat import ChatRenderer, same_text
from gem_core.episodes.special_tokens import SpecialTokens, added_tokens
from gem_core.episodes.token_cache import TokenCache
from gem_core.episodes.turn_ends import find_stop_ids, split_turn_end
from gem_core.errors import RecipeError, require_kind, require_methods, unknown

History = Literal["append", "last", "window", "concat", "concat_with_action"]
_SLOT = "{observation}"
_GET_TEMPLATE = "gem_core.episodes.context.get_template(name, tokenizer) returns one."
_LOAD_TOKENIZER = "transformers.AutoTokenizer.from_pretrained(...) returns one."
_WRAP_TOKENIZER = "HFTokenizer(tokenizer, template) makes one of a Hugging Face tokenizer."


@dataclass(frozen=True)
class Template:
    """Text around an observation.

    Attributes:
        name: its name in recipes.
        first: the prompt of the first turn; ``{observation}`` is replaced.
        next: the text after an action in an append-only history; ``{observation}`` is replaced.
        close: the text that ends an action without a stop token (it was cut off), ``""`` for none.
        close_opens: ``close`` also begins the next message (GLM-4), so that an action which ends
            with another stop token needs it too.
        tool: the text after an action where the result of a tool follows, which is then a message
            of the role ``tool``; ``""``: as ``next``.
        renderer: renders a conversation that ``next`` cannot continue, because the chat template
            rewrites earlier turns (Qwen3 drops their thinking); ``None`` = it never does.
    """

    name: str
    first: str
    next: str
    close: str = ""
    close_opens: bool = field(default=False, repr=False)
    tool: str = field(default="", repr=False)
    renderer: ChatRenderer | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for part in ("first", "next"):
            if getattr(self, part).count(_SLOT) != 1:
                raise RecipeError(f"Template {self.name!r}: {part!r} needs {_SLOT} exactly once.")


def _chatml(name: str, head: str, tail: str, label: str) -> Template:
    """Return a ChatML template: ``head``, observation, ``tail`` first, the observation later."""
    open_ = "<|im_start|>user\n"
    close = "<|im_end|>\n<|im_start|>assistant\n"
    return Template(
        name,
        f"{open_}{head}{_SLOT}{tail}{close}",
        f"\n{open_}{label}{_SLOT}{close}",
        "<|im_end|>",
    )


# The first-turn texts are GEM's own (gem-llm 0.1.0), so that prompts are comparable.
_BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
TEMPLATES: dict[str, Template] = {
    t.name: t
    for t in (
        _chatml(
            "qwen3_game",
            "You are playing language games. Make valid actions to win.\nObservation: ",
            _BOXED,
            "Observation: ",
        ),
        _chatml("qwen3_general", "Question: ", _BOXED, ""),
        Template(
            "code",
            "You are an expert Python programmer. You will be given a question (problem "
            "specification) and will generate a correct Python program that matches the "
            f"specification and passes all tests.\nQuestion: {_SLOT}\nPlease reason step by step, "
            "and write your code in markdown format, e.g., ```python\n# YOUR CODE HERE\n```.",
            f"\n{_SLOT}\n",
        ),
        Template("no", _SLOT, f"\n{_SLOT}\n"),
    )
}


class Tokenizer(Protocol):
    """The interface of a tokenizer that `Context` needs."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``, without added special tokens."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``, without special tokens."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an action."""


class HFTokenizer:
    """A Hugging Face tokenizer as a `Tokenizer`; observations that repeat are cached.

    Args:
        tokenizer: the tokenizer.
        template: its text at the end of an action and the tokenizer's eos token end an action.
        eos_ids: further ids that end one: those that the model's ``generation_config.json`` names,
            see `gem_core.runs.generation_config.read_eos_ids`.
    """

    def __init__(
        self, tokenizer: Any, template: Template | None = None, eos_ids: Iterable[int] = ()
    ) -> None:
        require_methods("HFTokenizer(tokenizer)", tokenizer, ("encode", "decode"), _LOAD_TOKENIZER)
        require_kind("HFTokenizer(template=)", template, (Template, type(None)), _GET_TEMPLATE)
        closing = template.close if template else ""
        self._set_up(tokenizer, find_stop_ids(tokenizer, closing, eos_ids))

    def _set_up(self, hf: Any, stop_ids: frozenset[int]) -> None:
        self.hf = hf
        self._stop_ids = stop_ids
        self.special = SpecialTokens(hf)
        self._encode = TokenCache(lambda text: tuple(self.special.encode(text)))

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        return list(self._encode(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `Tokenizer`."""
        return str(self.hf.decode(token_ids, skip_special_tokens=True))

    @property
    def stop_ids(self) -> frozenset[int]:
        """See `Tokenizer`."""
        return self._stop_ids

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_tokenizer, (self.hf, self._stop_ids)


def _rebuild_tokenizer(hf: Any, stop_ids: frozenset[int]) -> HFTokenizer:
    tokenizer = HFTokenizer.__new__(HFTokenizer)
    tokenizer._set_up(hf, stop_ids)
    return tokenizer


def get_template(name: str, tokenizer: Any = None, system: str | None = None) -> Template:
    """Return the template called ``name``; ``"chat"`` derives it from a Hugging Face tokenizer.

    Raises:
        UnknownNameError: there is no such template.
        RecipeError: ``"chat"`` without a usable chat template.
    """
    if name == "chat":
        return chat_template(tokenizer, system)
    if name not in TEMPLATES:
        raise unknown("template", name, [*TEMPLATES, "chat"], f"Known: {[*TEMPLATES, 'chat']}.")
    return TEMPLATES[name]


def chat_template(tokenizer: Any, system: str | None = None, tools: Sequence[Any] = ()) -> Template:
    """Derive an append-only `Template` from a tokenizer's own chat template.

    With tools, the chat template describes them and renders their results.

    A conversation of marker texts is rendered once and cut at the markers. A chat template that
    rewrites earlier turns (Qwen3 drops old thinking) gives a template with a ``renderer``: the
    machine then begins a new segment where the history changes, and only there.

    Raises:
        RecipeError: there is no chat template, it changes the texts of the messages, nothing in it
            ends a turn, or it has no place for tools.
    """
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise RecipeError(
            "context.template = 'chat' needs a tokenizer with a chat template; this one has none. "
            "Choose another template."
        )
    user = "\u2983first\u2984"
    action = "\u2983action\u2984"
    later = "\u2983later\u2984"
    render = ChatRenderer(tokenizer, system, tools)
    start = [{"role": "user", "content": user}]
    more = [{"role": "assistant", "content": action}, {"role": "user", "content": later}]
    first = render(start)
    full = render([*start, *more])
    if first.count(user) != 1 or full.count(action) != 1 or full.count(later) != 1:
        raise RecipeError(
            "The chat template changes the texts of messages; choose another context.template."
        )
    between, rest = full.split(action)[1].split(later)
    close, opening = split_turn_end(between, tokenizer)
    first = first.replace(user, _SLOT)
    return Template(
        "chat",
        first,
        f"{opening}{_SLOT}{rest}",
        close,
        close_opens=not any(token in opening for token in added_tokens(tokenizer)),
        tool=_tool_text(render, start, close) if tools else "",
        renderer=render if render.rewrites(first, close + opening, rest) else None,
    )


def _tool_text(render: ChatRenderer, start: list[dict[str, str]], close: str) -> str:
    """Return the text after an action that a tool's result follows, with the slot.

    Raises:
        RecipeError: the chat template does not describe tools, or not their results.
    """
    action = "\u2983action\u2984"
    result = "\u2983result\u2984"
    more = [{"role": "assistant", "content": action}, {"role": "tool", "content": result}]
    refused = RecipeError(
        "This tokenizer's chat template has no place for tools: leave out tool_use.native, so that "
        "the first observation describes them."
    )
    try:
        described = render(start)
        full = render([*start, *more])
    except Exception as error:  # templates raise errors of Jinja's, and of their own
        raise refused from error
    names = [tool["function"]["name"] for tool in render.options["tools"]]
    if not all(name in described for name in names):
        raise refused
    if full.count(action) != 1 or full.count(result) != 1:
        raise refused
    between, rest = full.split(action)[1].split(result)
    if not between.startswith(close):
        raise refused
    return f"{between[len(close) :]}{_SLOT}{rest}"


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
            ``window`` turns), ``concat`` (all observations), ``concat_with_action``.
        window: number of past turns kept by ``window``.

    Raises:
        KindError: an argument is of another kind.
        RecipeError: there is no such history, or ``window`` does not fit it.
    """

    template: Template
    tokenizer: Tokenizer | None = None
    history: History = "append"
    window: int | None = None
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
        if isinstance(self.tokenizer, HFTokenizer):
            self._special = self.tokenizer.special
            if self.template.close_opens:
                self._close_id = self.tokenizer.encode(self.template.close)[-1]

    def start(self, observation: str, info: dict[str, Any]) -> str:
        """Begin an episode; return the first prompt as a text to encode (see `plain`)."""
        self._instructions = observation
        self._events = []
        shown = with_suffix(observation, info)
        self.messages = [{"role": "user", "content": shown}]
        self._rendered = self.template.first.replace(_SLOT, self._guarded(shown))
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
        self._events.append((action, observation))
        shown = with_suffix(observation, info)
        if self.history == "append":
            of_tool = bool(self.template.tool) and info.get("role") == "tool"
            self.messages += [
                {"role": "assistant", "content": action},
                {"role": "tool" if of_tool else "user", "content": shown},
            ]
            after = self.template.tool if of_tool else self.template.next
            text = after.replace(_SLOT, self._guarded(shown))
            extension = Extension(text if stopped else self.template.close + text, fresh=False)
            if self.template.renderer is None:
                return extension
            return self._rerendered(self.template.renderer, action, text, extension)
        content = with_suffix(self._rewritten(), info)
        self.messages = [{"role": "user", "content": content}]
        return Extension(self.template.first.replace(_SLOT, self._guarded(content)), fresh=True)

    def _rerendered(
        self, render: ChatRenderer, action: str, text: str, extension: Extension
    ) -> Extension:
        """Return ``extension``, or the whole conversation where the chat template rewrites it."""
        expected = f"{self._rendered}{self._guarded(action)}{self.template.close}{text}"
        guarded = [{**m, "content": self._guarded(m["content"])} for m in self.messages]
        whole = render(guarded)
        if same_text(whole, expected):
            self._rendered = expected
            return extension
        self._rendered = whole
        return Extension(whole, fresh=True)

    def _guarded(self, text: str) -> str:
        return text if self._special is None else self._special.guard(text)

    def _rewritten(self) -> str:
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
