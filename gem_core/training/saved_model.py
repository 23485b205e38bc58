"""The model that a trainer wrote: checked, and completed for what loads and serves it."""

from __future__ import annotations

from pathlib import Path

from gem_core.episodes.tokenizers import HFTokenizer
from gem_core.policies.models.files import copy_source_files
from gem_core.policies.models.weights import require_export
from gem_core.runs.generation_config import read_eos_ids, write_eos_ids
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.recipe.templates import recipe_template


def complete_model(recipe: Recipe, trainer: str, source: str, model: Path) -> None:
    """Give the saved model the files of ``source``, and the tokens at which its turns ended.

    Raises:
        RunError: the trainer wrote no model, one that lacks weights, or one of another shape.
    """
    from transformers import AutoTokenizer

    require_export(trainer, model)
    copy_source_files(source, recipe.model.revision, model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    template = recipe_template(recipe.context, tokenizer)
    ends = HFTokenizer(tokenizer, template, read_eos_ids(tokenizer)).stop_ids
    write_eos_ids(model, sorted(ends))
