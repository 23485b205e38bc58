"""The weights that a run starts from, trains and exports: all of the model's, or LoRA adapters."""

from __future__ import annotations

from typing import Any

from gem_core.errors import MissingDependencyError
from gem_core.runs.recipe.tables import LoraConfig


def lora_config(lora: LoraConfig) -> Any:
    """Return ``model.lora`` as PEFT's configuration; ``None`` where it has no adapters.

    Raises:
        MissingDependencyError: PEFT is not installed.
    """
    if not lora.rank:
        return None
    try:
        from peft import LoraConfig as PeftConfig
    except ImportError as error:
        raise MissingDependencyError(
            "model.lora needs PEFT: pip install 'trl[peft]' in the trainer's environment."
        ) from error
    return PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.targets) or "all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )


def save_merged(model: Any, tokenizer: Any, folder: str) -> None:
    """Write a model with its adapters merged, in Hugging Face's format; it stays as it is.

    Args:
        model: a ``PeftModel``.
        tokenizer: is written beside it.
        folder: where to.
    """
    base = model.get_base_model()
    prefix = model.prefix
    model.merge_adapter()
    try:
        weights = {
            name.replace(".base_layer", ""): tensor
            for name, tensor in base.state_dict().items()
            if prefix not in name
        }
        base.save_pretrained(folder, state_dict=weights)
    finally:
        model.unmerge_adapter()
    tokenizer.save_pretrained(folder)
