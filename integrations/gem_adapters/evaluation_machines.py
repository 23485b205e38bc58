"""What an engine of an evaluation needs of a model's directory besides its weights."""

from __future__ import annotations

from pathlib import Path

from gem_core.policies.models.weights import require_no_code
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory


def load_machines(recipe: Recipe, model_dir: str | Path) -> tuple[MachineFactory, str | None]:
    """Load a model's tokenizer; return what makes machines, and the revision of the weights.

    Args:
        recipe: the experiment.
        model_dir: Hugging Face directory or id, including a tokenizer.

    Raises:
        TrustError: the model brings code, and the user gave no ``--trust``.
    """
    import transformers

    # A trained model has a directory of its own; the revision belongs to the recipe's model.
    revision = recipe.model.revision if str(model_dir) == recipe.model.path else None
    require_no_code(model_dir, revision)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        str(model_dir), revision=revision or "main"
    )
    return MachineFactory(recipe, tokenizer), revision
