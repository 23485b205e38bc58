"""What one GPU holds while a recipe trains, and what is unsound about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gem_core.errors import RecipeError
from gem_core.runs.memory_layout import MemoryLayout, Sharding
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import get_trainer
from gem_preflight.activations import Precision
from gem_preflight.engine import GB, SMALLER, engine_share, room_problem, stays_awake
from gem_preflight.moments import Moment, Pass, moments, waiting_gradient
from gem_preflight.shapes import Shape, model_shape

USABLE = 0.9
"""Share of a GPU's memory that tensors may take; CUDA's context and fragments need the rest."""


@dataclass(frozen=True)
class Plan:
    """The result of `estimate`.

    Attributes:
        parts: bytes on one GPU at the moment of an update that needs the most, by name.
        moment: that moment, in words.
        tokens_per_pass: most tokens in one forward pass.
        rows_per_pass: most rows in one forward pass, all of the longest length.
        tokens_per_step: most tokens of a training step, over all GPUs.
        cache_per_row: bytes of keys and values of one row of the longest length in the engine.
        capacity: bytes of one GPU.
        problems: what does not fit, and what to change; empty if it fits.
    """

    parts: dict[str, int]
    moment: str
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

    Every row is taken to have the longest length, ``limits.max_context_tokens``, and gradients of
    an earlier pass to be there. The counts are those that ``benchmarks/memory`` checks against CPU
    runs, and ``benchmarks/gpu_memory`` against the trainers' updates. Not in them: layers that
    sharded GPUs gather, buffers of NCCL and of GPU kernels, what the allocator cannot reuse;
    `USABLE` leaves room for these.

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
    capacity = int(gigabytes * GB)
    usable = int(USABLE * capacity)
    states = _states(recipe, how, shape)
    share = engine_share(recipe, trainer, how.engine)
    awake = stays_awake(recipe, trainer, how.engine)
    held = states | ({"engine": int(share * capacity)} if awake and share else {})
    logit = bytes_per_logit(recipe, trainer, how)
    peak = _peak(recipe, how, shape, tokens, logit)
    parts = held | _parts(peak)
    cache = shape.cache_bytes(longest, 4 if recipe.model.dtype == "float32" else 2)
    problems = []
    if sum(parts.values()) > usable:
        fitting = _fitting(recipe, how, shape, tokens, logit, usable - sum(held.values()))
        needed = sum(parts.values())
        problems.append(_advice(recipe, how, longest, tokens, fitting, needed, capacity))
    if how.engine and how.engine.beside and not problems:
        least = cache + shape.parameters * (4 if recipe.model.dtype == "float32" else 2)
        key = f"trainer.{trainer}.{how.engine.share_key}"
        problem = room_problem(states, share, capacity, usable, least, key)
        problems += [problem] if problem else []
    return Plan(
        parts=parts,
        moment=peak.name,
        tokens_per_pass=tokens,
        rows_per_pass=max(1, tokens // longest),
        tokens_per_step=recipe.batch.episodes * longest,
        cache_per_row=cache,
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
    sharding = _sharding(recipe, how)
    gpus = recipe.hardware.gpus
    whole = 1 if sharding == "none" else gpus
    weights = how.weights * shape.parameters // (gpus if sharding == "full" else 1)
    parts = {"weights": weights}
    trained = 0 if recipe.model.lora.rank else shape.parameters
    buckets = how.buckets if gpus > 1 else 0
    parts["gradients"] = (how.gradients + buckets) * trained // whole
    if how.whole_gradients and sharding == "optimizer" and trained:
        embedding = how.gradients * shape.vocab * shape.hidden
        parts["gradients"] = max(parts["gradients"], embedding)
    on_gpu = recipe.hardware.offload == "none"
    parts["optimizer"] = how.optimizer * trained // whole if on_gpu else 0
    if recipe.algorithm.kl_coef:
        parts["reference"] = weights
    if recipe.algorithm.estimator == "gae":
        parts["critic"] = parts["weights"] + parts["gradients"] + parts["optimizer"]
    return parts


def _sharding(recipe: Recipe, how: MemoryLayout) -> Sharding:
    asked = recipe.hardware.sharding
    return how.sharding if asked == "default" else asked


def bytes_per_logit(recipe: Recipe, trainer: str, how: MemoryLayout) -> int:
    """Return the bytes of a logit at the worst moment of the loss; 0 = never all there."""
    native = recipe.trainer.get(trainer, {})
    if how.fused_key and native.get(how.fused_key, recipe.batch.micro_batch == 1):
        return 0
    if how.bytes_with_support is not None and recipe.sampling.support == "drawn":
        return how.bytes_with_support
    if how.bytes_with_entropy is not None and recipe.algorithm.entropy_coef:
        return how.bytes_with_entropy
    return how.bytes_per_logit


def _peak(recipe: Recipe, how: MemoryLayout, shape: Shape, tokens: int, logit: int) -> Moment:
    """Return the moment that needs the most, with ``logit`` bytes of a logit at the loss."""
    precision: Precision = "autocast" if how.autocast else "bfloat16"
    if recipe.model.dtype == "float32":
        precision = "float32"
    checkpointing = recipe.model.gradient_checkpointing
    frozen = recipe.model.lora.rank > 0
    one = Pass(tokens, precision, checkpointing, logit, frozen=frozen)
    if not logit:
        one = replace(one, chunk_tokens=how.head_chunk[0], chunk_bytes=how.head_chunk[1])
    states = _states(recipe, how, shape)
    step = how.step * states["optimizer"] // how.optimizer
    bucket = how.reduce_bucket if _sharding(recipe, how) != "none" else 0
    candidates = moments(shape, one, step)
    found = [_with_gradients(shape, one, moment, bucket) for moment in candidates]
    return max(found, key=lambda moment: moment.total)


def _with_gradients(shape: Shape, one: Pass, moment: Moment, bucket: int) -> Moment:
    """Add what a backward pass has of gradients beside those of the pass before."""
    if moment.made == "all":
        return moment
    waiting = waiting_gradient(shape, one, moment)
    return replace(moment, temporaries=moment.temporaries + waiting, bucket=bucket)


def _parts(moment: Moment) -> dict[str, int]:
    parts = {
        "activations": moment.activations,
        "logits": moment.logits,
        "temporaries": moment.temporaries,
    }
    return parts | ({"reduce bucket": moment.bucket} if moment.bucket else {})


def _fitting(
    recipe: Recipe, how: MemoryLayout, shape: Shape, tokens: int, logit: int, room: int
) -> int:
    """Return how many of ``tokens`` tokens can go through one pass in ``room`` bytes."""
    low, high = 0, tokens
    while low < high:
        middle = (low + high + 1) // 2
        if _peak(recipe, how, shape, middle, logit).total <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _advice(
    recipe: Recipe,
    how: MemoryLayout,
    longest: int,
    tokens: int,
    fitting: int,
    needed: int,
    capacity: int,
) -> str:
    """Return what does not fit and the change that makes it fit."""
    text = f"An update needs {needed / GB:.0f} GB of {capacity / GB:.0f} GB on each GPU"
    if fitting < longest:
        change = (
            "use a smaller model, more GPUs, hardware.sharding = 'full' or hardware.offload where "
            "the trainer has them"
        )
        return (
            f"{text}, and one row of limits.max_context_tokens = {longest} is too long already "
            f"(at most {fitting} tokens fit): {SMALLER if how.sharding == 'none' else change}, or "
            f"lower limits.max_context_tokens."
        )
    if how.packed and not recipe.batch.micro_batch:
        return f"{text}: set batch.max_tokens_per_device to at most {fitting} (now {tokens} go in)."
    return (
        f"{text}: set batch.micro_batch to at most {fitting // longest} "
        f"(now {tokens // longest} rows go through one forward pass)."
    )
