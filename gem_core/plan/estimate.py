"""What one GPU holds while a recipe trains, and what is unsound about it."""

from __future__ import annotations

from dataclasses import dataclass

from gem_core.errors import RecipeError
from gem_core.plan import memory
from gem_core.plan.shapes import Shape, model_shape
from gem_core.training.memory_layout import MemoryLayout, Sharding
from gem_core.training.recipe import Recipe
from gem_core.training.trainers import get_trainer

GB = 1e9
USABLE = 0.9
"""Share of a GPU's memory that tensors may take; CUDA's context and fragments need the rest."""


@dataclass(frozen=True)
class Plan:
    """The result of `estimate`.

    Attributes:
        parts: bytes on one GPU during an update, by name.
        tokens_per_pass: most tokens in one forward pass.
        rows_per_pass: most rows in one forward pass, all of the longest length.
        tokens_per_step: most tokens of a training step, over all GPUs.
        cache_per_row: bytes of keys and values of one row of the longest length in the engine.
        capacity: bytes of one GPU.
        problems: what does not fit, and what to change; empty if it fits.
    """

    parts: dict[str, int]
    tokens_per_pass: int
    rows_per_pass: int
    tokens_per_step: int
    cache_per_row: int
    capacity: int
    problems: tuple[str, ...]

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(self.parts.values())


def estimate(recipe: Recipe, trainer: str, gigabytes: float) -> Plan:
    """Compute what ``trainer`` needs for ``recipe`` on GPUs of ``gigabytes`` each.

    Every row is taken to have the longest length, ``limits.max_context_tokens``. The figures are
    lower bounds: what a trainer copies for a moment is not in them.

    Raises:
        RecipeError: the longest length is not bounded, the model's sizes are not known, or the
            trainer's adapter says nothing of its memory.
        UnknownNameError: there is no such trainer.
    """
    longest = recipe.limits.max_context_tokens
    if longest is None:
        raise RecipeError("Set limits.max_context_tokens: memory has no bound without it.")
    shape = model_shape(recipe.model)
    how = get_trainer(trainer).memory
    if how is None:
        raise RecipeError(f"The adapter of {trainer} does not declare how it uses memory.")
    tokens = _tokens_per_pass(recipe, how, longest)
    parts = _states(recipe, how, shape) | _pass(recipe, how, shape, tokens)
    capacity = int(gigabytes * GB)
    needed = sum(parts.values())
    problems = []
    if needed > USABLE * capacity:
        problems.append(_advice(recipe, how, parts, longest, tokens, needed, capacity))
    return Plan(
        parts=parts,
        tokens_per_pass=tokens,
        rows_per_pass=max(1, tokens // longest),
        tokens_per_step=recipe.batch.episodes * longest,
        cache_per_row=shape.cache_bytes(longest),
        capacity=capacity,
        problems=tuple(problems),
    )


def _tokens_per_pass(recipe: Recipe, how: MemoryLayout, longest: int) -> int:
    batch = recipe.batch
    ranks = recipe.hardware.gpus * recipe.algorithm.minibatches
    minibatch = -(-batch.episodes // ranks)  # rounded up
    if how.packed and batch.max_tokens_per_device:
        return min(batch.max_tokens_per_device, minibatch * longest)
    if batch.micro_batch:
        return min(batch.micro_batch, minibatch) * longest
    if how.default_tokens:
        return min(max(how.default_tokens, longest), minibatch * longest)
    return longest * (1 if how.rows == "one" else minibatch)


def _states(recipe: Recipe, how: MemoryLayout, shape: Shape) -> dict[str, int]:
    """Weights, gradients and optimizer states; a LoRA's own are small and left out."""
    asked = recipe.hardware.sharding
    sharding: Sharding = how.sharding if asked == "default" else asked
    gpus = recipe.hardware.gpus
    whole = 1 if sharding == "none" else gpus
    weights = how.weights * shape.parameters // (gpus if sharding == "full" else 1)
    parts = {"weights": weights}
    trained = 0 if recipe.model.lora.rank else shape.parameters
    parts["gradients"] = how.gradients * trained // whole
    on_gpu = recipe.hardware.offload == "none"
    parts["optimizer"] = how.optimizer * trained // whole if on_gpu else 0
    if recipe.algorithm.kl_coef:
        parts["reference"] = weights
    if recipe.algorithm.estimator == "gae":
        parts["critic"] = parts["weights"] + parts["gradients"] + parts["optimizer"]
    return parts


def _pass(recipe: Recipe, how: MemoryLayout, shape: Shape, tokens: int) -> dict[str, int]:
    width = 4 if recipe.model.dtype == "float32" else 2
    checkpointing = recipe.model.gradient_checkpointing
    return {
        "activations": memory.activations(shape, tokens, width, checkpointing),
        "logits": memory.logits(shape, tokens, how.bytes_per_logit),
    }


def _advice(
    recipe: Recipe,
    how: MemoryLayout,
    parts: dict[str, int],
    longest: int,
    tokens: int,
    needed: int,
    capacity: int,
) -> str:
    """Return what does not fit and the change that makes it fit."""
    text = f"An update needs {needed / GB:.0f} GB of {capacity / GB:.0f} GB on each GPU"
    per_token = (parts["activations"] + parts["logits"]) / tokens
    fixed = needed - parts["activations"] - parts["logits"]
    room = int((USABLE * capacity - fixed) / per_token)
    if room < longest:
        return (
            f"{text}, and one row of limits.max_context_tokens = {longest} is too long already "
            f"(at most {max(room, 0)} tokens fit): use a smaller model, more GPUs, "
            f"hardware.sharding = 'full' or hardware.offload where the trainer has them, or lower "
            f"limits.max_context_tokens."
        )
    if how.packed and not recipe.batch.micro_batch:
        return f"{text}: set batch.max_tokens_per_device to at most {room} (now {tokens} go in)."
    return (
        f"{text}: set batch.micro_batch to at most {room // longest} "
        f"(now {tokens // longest} rows go through one forward pass)."
    )
