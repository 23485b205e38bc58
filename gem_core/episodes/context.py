"""How observations become the tokens a policy reads: templates, tokenizers, histories.

An append-only history tokenises each observation once, alone, and never touches what was sampled
(token in, token out). The other histories rewrite the prompt, so each turn begins a new segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

from gem_core.errors import RecipeError, unknown

History = Literal["append", "last", "window", "concat", "concat_with_action"]
_SLOT = "{observation}"


@dataclass(frozen=True)
class Template:
    """Text around an observation.

    Attributes:
        name: what recipes call it.
        first: the prompt of the first turn; ``{observation}`` is replaced.
        next: what follows a closed action in an append-only history; ``{observation}`` is replaced.
        close: what ends an action that has no stop token of its own (it was cut off), "" for none.
    """

    name: str
    first: str
    next: str
    close: str = ""

    def __post_init__(self) -> None:
        for part in ("first", "next"):
            if getattr(self, part).count(_SLOT) != 1:
                raise RecipeError(f"Template {self.name!r}: {part!r} needs {_SLOT} exactly once.")


def _chatml(name: str, head: str, tail: str, label: str) -> Template:
    """A ChatML template: ``head`` + observation + ``tail`` first, the bare observation later."""
    open_, close = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
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
    """What the context needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``, no special tokens added."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``, special tokens left out."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an action."""


class HFTokenizer:
    """A Hugging Face tokenizer as a `Tokenizer`; observations that repeat are cached."""

    def __init__(self, tokenizer: Any, template: Template | None = None) -> None:
        self.hf = tokenizer
        self._stop_ids = self._find_stop_ids(template)
        self._encode = lru_cache(maxsize=4096)(self._encode_uncached)

    def _find_stop_ids(self, template: Template | None) -> frozenset[int]:
        ids = {self.hf.eos_token_id} - {None}
        closing = template.close.strip() if template else ""
        if closing:
            # A base model's eos differs from the template's turn end; both must stop a turn.
            encoded = self.hf.encode(closing, add_special_tokens=False)
            if len(encoded) == 1:
                ids.add(encoded[0])
        if not ids:
            raise RecipeError("The tokenizer has no eos token: a turn could never end. Set one.")
        return frozenset(int(i) for i in ids)

    def _encode_uncached(self, text: str) -> tuple[int, ...]:
        return tuple(self.hf.encode(text, add_special_tokens=False))

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
    tokenizer = HFTokenizer(hf)
    tokenizer._stop_ids = stop_ids
    return tokenizer


def get_template(name: str, tokenizer: Any = None, system: str | None = None) -> Template:
    """Return the template called ``name``; ``"chat"`` derives it from a Hugging Face tokenizer.

    Raises:
        UnknownNameError: no such template.
        RecipeError: ``"chat"`` without a usable chat template.
    """
    if name == "chat":
        return chat_template(tokenizer, system)
    if name not in TEMPLATES:
        raise unknown("template", name, [*TEMPLATES, "chat"], f"Known: {[*TEMPLATES, 'chat']}.")
    return TEMPLATES[name]


def chat_template(tokenizer: Any, system: str | None = None) -> Template:
    """Derive an append-only `Template` from a tokenizer's own chat template.

    A conversation with marker texts is rendered once and cut at the markers. Templates that rewrite
    earlier turns (Qwen3 drops old thinking) are used as they render the first time: what was
    sampled stays in the history.

    Raises:
        RecipeError: no chat template, or one that cannot be cut (it changes the texts it is given).
    """
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise RecipeError("template 'chat' needs a tokenizer with a chat template; this has none.")
    user, action, later = "\u2983first\u2984", "\u2983action\u2984", "\u2983later\u2984"
    head = [{"role": "system", "content": system}] if system else []
    start = [*head, {"role": "user", "content": user}]
    more = [{"role": "assistant", "content": action}, {"role": "user", "content": later}]
    first = tokenizer.apply_chat_template(start, tokenize=False, add_generation_prompt=True)
    full = tokenizer.apply_chat_template(
        [*start, *more], tokenize=False, add_generation_prompt=True
    )
    if first.count(user) != 1 or full.count(action) != 1 or full.count(later) != 1:
        raise RecipeError("The chat template changes the message texts; use a plain template.")
    between = full.split(action)[1]
    eos = tokenizer.eos_token or ""
    close = between[: between.index(eos) + len(eos)] if eos and eos in between else ""
    return Template(
        "chat",
        first.replace(user, _SLOT),
        between[len(close) :].replace(later, _SLOT),
        close,
    )


class Extension(NamedTuple):
    """What a turn adds to the prompt: its text, and whether it replaces all that came before."""

    text: str
    fresh: bool


@dataclass
class Context:
    """Renders one episode's prompts; one instance per episode.

    Attributes:
        template: texts around the observations.
        tokenizer: None where prompts are used as text or messages only.
        history: ``append`` (token in, token out), or a prompt that is rewritten each turn: ``last``
            (instructions and the current observation), ``window`` (instructions and the last
            ``window`` turns), ``concat`` (all observations), ``concat_with_action``.
        window: number of past turns kept by ``window``.
    """

    template: Template
    tokenizer: Tokenizer | None = None
    history: History = "append"
    window: int | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    _events: list[tuple[str, str]] = field(default_factory=list)
    _instructions: str = ""

    def __post_init__(self) -> None:
        if (self.history == "window") != (self.window is not None):
            raise RecipeError("history='window' and window=<number of turns> go together.")

    def start(self, observation: str, info: dict[str, Any]) -> str:
        """Begin an episode; return the first prompt as text."""
        self._instructions, self._events = observation, []
        shown = with_suffix(observation, info)
        self.messages = [{"role": "user", "content": shown}]
        return self.template.first.replace(_SLOT, shown)

    def extend(
        self, action: str, stopped: bool, observation: str, info: dict[str, Any]
    ) -> Extension:
        """Add an action and the observation that answers it.

        Args:
            action: decoded action text.
            stopped: the sampled tokens already end with a stop token.
            observation: the environment's answer.
            info: its info; ``info["suffix"]`` is the current state as text.
        """
        self._events.append((action, observation))
        shown = with_suffix(observation, info)
        if self.history == "append":
            self.messages += [
                {"role": "assistant", "content": action},
                {"role": "user", "content": shown},
            ]
            text = self.template.next.replace(_SLOT, shown)
            return Extension(text if stopped else self.template.close + text, fresh=False)
        content = with_suffix(self._rewritten(), info)
        self.messages = [{"role": "user", "content": content}]
        return Extension(self.template.first.replace(_SLOT, content), fresh=True)

    def _rewritten(self) -> str:
        """Instructions and the part of the history that the mode keeps, without the state."""
        keep = {"last": 1, "window": (self.window or 0) + 1}.get(self.history, len(self._events))
        with_actions = self.history in ("window", "concat_with_action")
        parts = [self._instructions]
        kept = self._events[max(0, len(self._events) - keep) :]
        for number, (action, observation) in enumerate(kept):
            # The window's oldest observation answers an action that is no longer shown.
            oldest_cut = self.history == "window" and number == 0 and len(kept) < len(self._events)
            if with_actions and not oldest_cut:
                parts.append(action)
            parts.append(observation)
        return "\n".join(parts)


def with_suffix(observation: str, info: dict[str, Any]) -> str:
    """The observation followed by the current state (``info["suffix"]``) on a line of its own."""
    suffix = info.get("suffix")
    return f"{observation}\n{suffix}" if suffix else observation
