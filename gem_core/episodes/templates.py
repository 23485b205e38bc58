"""Templates: the text around observations, built in or derived from a tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gem_core.episodes.chat import ChatRenderer
from gem_core.episodes.special_tokens import added_tokens
from gem_core.episodes.turn_ends import split_turn_end
from gem_core.errors import RecipeError, unknown

SLOT = "{observation}"
"""What a template has in place of the observation."""


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
            if getattr(self, part).count(SLOT) != 1:
                raise RecipeError(f"Template {self.name!r}: {part!r} needs {SLOT} exactly once.")


def _chatml(name: str, head: str, tail: str, label: str) -> Template:
    """Return a ChatML template: ``head``, observation, ``tail`` first, the observation later."""
    open_ = "<|im_start|>user\n"
    close = "<|im_end|>\n<|im_start|>assistant\n"
    return Template(
        name,
        f"{open_}{head}{SLOT}{tail}{close}",
        f"\n{open_}{label}{SLOT}{close}",
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
            f"specification and passes all tests.\nQuestion: {SLOT}\nPlease reason step by step, "
            "and write your code in markdown format, e.g., ```python\n# YOUR CODE HERE\n```.",
            f"\n{SLOT}\n",
        ),
        Template("no", SLOT, f"\n{SLOT}\n"),
    )
}


NAMES = (*TEMPLATES, "chat", "custom")
"""What ``context.template`` may be: ``chat`` is the tokenizer's own, ``custom`` the recipe's."""


def get_template(name: str, tokenizer: Any = None, system: str | None = None) -> Template:
    """Return the template called ``name``; ``"chat"`` derives it from a Hugging Face tokenizer.

    A built-in template begins with the tokenizer's bos token where `with_bos` says so.

    Raises:
        UnknownNameError: there is no such template.
        RecipeError: ``"chat"`` without a usable chat template.
    """
    if name == "chat":
        return chat_template(tokenizer, system)
    if name not in TEMPLATES:
        raise unknown("template", name, NAMES, f"Known: {', '.join(NAMES)}.")
    return with_bos(TEMPLATES[name], tokenizer)


def with_bos(template: Template, tokenizer: Any) -> Template:
    """Return the template with the tokenizer's bos token before its first text.

    Models whose tokenizer begins every text with a bos token (Gemma, Llama) have never seen one
    without: for want of it the log-probability of each token falls. A tokenizer that adds none
    (Qwen), no tokenizer, and a text that has the token already leave the template as it is.
    """
    bos = getattr(tokenizer, "bos_token", None)
    if not bos or template.first.startswith(bos):
        return template
    bare = list(tokenizer.encode("x", add_special_tokens=False))
    begun = list(tokenizer.encode("x"))[:1] == [tokenizer.bos_token_id] != bare[:1]
    return replace(template, first=bos + template.first) if begun else template


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
    first = first.replace(user, SLOT)
    return Template(
        "chat",
        first,
        f"{opening}{SLOT}{rest}",
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
    return f"{between[len(close) :]}{SLOT}{rest}"
