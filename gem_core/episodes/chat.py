"""A tokenizer's own chat template: rendering with it, and a test of whether it rewrites turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MARK = "\u2983m{}\u2984"
_PROBES = (
    "{}",
    "<think>\n{} why\n</think>\n\n{}",
    "{} why\n</think>\n\n{}",
    "[THINK]{} why[/THINK]{}",
    "<thinking>{} why</thinking>{}",
)
"""Actions with and without thinking, in the forms that models write."""


class ChatRenderer:
    """Renders conversations with a Hugging Face tokenizer's chat template.

    Args:
        tokenizer: has a chat template.
        system: the system message that begins each conversation, ``None`` for none.
        tools: functions that the chat template describes, as `ToolEnv.functions` gives them.
    """

    def __init__(
        self, tokenizer: Any, system: str | None = None, tools: Sequence[Any] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self.options: dict[str, Any] = {"tools": list(tools)} if tools else {}
        self.head = [{"role": "system", "content": system}] if system else []

    def __call__(self, messages: Sequence[dict[str, str]]) -> str:
        """Return the text of ``messages`` and of the beginning of the next action."""
        return str(
            self.tokenizer.apply_chat_template(
                [*self.head, *messages],
                tokenize=False,
                add_generation_prompt=True,
                **self.options,
            )
        )

    def rewrites(self, first: str, before: str, after: str) -> bool:
        """Return whether the chat template ever changes the text of an earlier prompt.

        Args:
            first: the first prompt, with the slot ``{observation}``.
            before: the text between an action and the observation after it.
            after: the text between that observation and the next action.
        """
        return any(self._changes(probe, first, before, after) for probe in _PROBES)

    def _changes(self, probe: str, first: str, before: str, after: str) -> bool:
        marks = [_MARK.format(number) for number in range(3)]
        messages = [{"role": "user", "content": marks[0]}]
        expected = first.replace("{observation}", marks[0])
        for number, mark in enumerate(marks[1:]):
            action = probe.replace("{}", _MARK.format(f"a{number}"))
            messages += [{"role": "assistant", "content": action}]
            messages += [{"role": "user", "content": mark}]
            expected += f"{action}{before}{mark}{after}"
        return not same_text(self(messages), expected)


def same_text(one: str, other: str) -> bool:
    """Return whether two texts are equal up to white space, which many chat templates trim."""
    return one == other or "".join(one.split()) == "".join(other.split())
