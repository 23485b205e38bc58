"""The template of a recipe: built in, the tokenizer's own, or the recipe's own texts."""

from __future__ import annotations

from typing import Any

from gem_core.env.interface import Env
from gem_core.episodes.templates import TEMPLATES, Template, get_template, with_bos
from gem_core.runs.recipe.recipe import ContextConfig, EnvConfig

_MARKS = {"boxed": "\\boxed{", "tag": "<answer>", "fenced": "```"}
"""What a text has that asks for an answer in a format; none asks for ``plain``."""


def recipe_template(context: ContextConfig, tokenizer: Any = None) -> Template:
    """Return the template that ``context.template`` names; ``chat`` needs the model's tokenizer.

    Raises:
        UnknownNameError: there is no such template.
        RecipeError: ``chat`` without a usable chat template, or a text of ``[context.custom]``
            without one place for the observation.
    """
    if context.template != "custom":
        return get_template(context.template, tokenizer, context.system)
    texts = context.custom
    template = Template("custom", texts.first, texts.next, texts.close)
    return with_bos(template, tokenizer)


def answer_conflict(context: ContextConfig, config: EnvConfig, env: Env) -> str | None:
    """Return a sentence where a recipe's template asks for answers that an environment cannot read.

    ``None``: they agree, or one of the two formats is not known.
    """
    built_in = TEMPLATES.get(context.template)
    first = context.custom.first if context.template == "custom" else built_in and built_in.first
    text = f"{context.system or ''}{first or ''}"
    asked = [name for name, mark in _MARKS.items() if mark in text]
    of_tools = config.tool_use.answer_format if config.tools else None
    read = of_tools or getattr(env.unwrapped, "answer_format", None)
    if not asked or read in asked or read not in (*_MARKS, "plain"):
        return None
    return (
        f"The prompt contradicts itself: context.template = {context.template!r} asks for answers "
        f"in the format {' or '.join(map(repr, asked))}, and {config.id} reads {read!r}. Choose "
        "another context.template, such as 'no', or another answer_format of the environment."
    )
