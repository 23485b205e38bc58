"""The template of a recipe: built in, the tokenizer's own, or the recipe's own texts."""

from __future__ import annotations

from typing import Any

from gem_core.episodes.templates import Template, get_template, with_bos
from gem_core.runs.recipe.recipe import ContextConfig


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
