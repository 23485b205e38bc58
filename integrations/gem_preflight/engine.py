"""What the generation engine takes of a GPU, and whether it has room beside the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.runs.memory_layout import EngineMemory
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe

GB = 1e9


def engine_share(recipe: Recipe, trainer: str, engine: EngineMemory | None) -> float:
    """Return the share of a GPU that the engine takes while episodes are played."""
    native = _native(recipe, trainer)
    if engine is None or recipe.hardware.engine == "hf":
        return 0.0
    key, value = engine.elsewhere
    if key and native.get(key) == value:
        return 0.0
    return float(native.get(engine.share_key, engine.share))


def stays_awake(recipe: Recipe, trainer: str, engine: EngineMemory | None) -> bool:
    """Return whether the recipe keeps the engine's memory while the model is trained."""
    if engine is None or not engine.sleep_key:
        return False
    return _native(recipe, trainer).get(engine.sleep_key) is False


def room_problem(
    states: Mapping[str, int],
    share: float,
    capacity: int,
    usable: int,
    needed: int,
    key: str,
) -> str | None:
    """Return what does not fit while episodes are played, and what to change; else ``None``.

    Args:
        states: bytes that training keeps on the GPU, by name; gradients are not there then.
        share: what the engine takes of the GPU.
        capacity: bytes of the GPU.
        usable: of these, what tensors may take.
        needed: bytes of the engine's weights and of the cache of one row.
        key: the key that sets the share.
    """
    kept = sum(size for name, size in states.items() if name != "gradients")
    if not share or kept + share * capacity <= usable:
        return None
    text = (
        f"While episodes are played, {kept / GB:.0f} GB of training stay beside the engine's "
        f"{share:g} of {capacity / GB:.0f} GB on each GPU"
    )
    if usable - kept < needed:
        return f"{text}, and it needs {needed / GB:.0f} GB: {SMALLER}."
    most = int(100 * (usable - kept) / capacity) / 100
    return f"{text}: set {key} to at most {most:g}."


SMALLER = (
    "train a LoRA (model.lora.rank), use more GPUs with a trainer that divides the model among "
    "them (verl, OpenRLHF, RL2), or a smaller model"
)
"""What to do where each GPU holds the whole model."""


def _native(recipe: Recipe, trainer: str) -> dict[str, Any]:
    return flatten(recipe.trainer.get(trainer, {}))
