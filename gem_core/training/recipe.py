"""The recipe: the one description of an experiment that every adapter translates.

A recipe is a TOML file. ``load_recipe`` merges, in this order: the schema's defaults, the baseline
(environment, template, the paper's hyper-parameters with their sources), a profile (``tiny``,
``paper``), the baseline's own ``[profiles.<name>]`` table, and ``key=value`` overrides. Unknown
keys, wrong types and impossible values are errors that name the key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from gem_core.episodes.context import History
from gem_core.episodes.machine import Limits
from gem_core.errors import RecipeError, did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Recipe", "load_recipe", "recipe_keys"]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables of a recipe: immutable, unknown keys are errors."""


class EnvConfig(_Table, frozen=True, kw_only=True):
    """One environment of the mix."""

    id: str
    """Registered id, see ``gem-core list``."""
    kwargs: dict[str, Any] = {}
    """Parameters that override the id's own."""
    weight: float = 1.0
    """Share of the episodes, relative to the other environments."""
    max_turns: int | None = None
    """Turn limit from outside the task; None leaves it to the environment."""


class ContextConfig(_Table, frozen=True, kw_only=True):
    """How observations become prompts."""

    template: str = "qwen3_general"
    """``qwen3_game``, ``qwen3_general``, ``code``, ``no``, or ``chat`` (the tokenizer's own)."""
    history: History = "append"
    """``append`` keeps one token sequence; the others rewrite the prompt each turn."""
    window: int | None = None
    """Turns kept by ``history = "window"``."""
    system: str | None = None
    """System message, for ``template = "chat"``."""


class TinyConfig(_Table, frozen=True, kw_only=True):
    """The embedded tiny model and its warm start (behaviour cloning of a noisy expert)."""

    layers: int = 2
    """Decoder layers."""
    hidden: int = 64
    """Width; a multiple of twice ``heads``."""
    heads: int = 4
    """Attention heads."""
    vocab: int = 1024
    """Upper bound of the BPE vocabulary."""
    max_positions: int = 1024
    """Longest sequence in tokens."""
    warm_start_steps: int = 200
    """Optimizer steps of the warm start; 0 leaves the random initialisation."""
    warm_start_batch: int = 32
    """Expert episodes per warm-start step."""
    warm_start_lr: float = 5e-3
    """Peak learning rate of the warm start; it warms up, then decays to zero."""
    expert_noise: float = 0.5
    """Probability that the expert acts at random instead of well."""


class ModelConfig(_Table, frozen=True, kw_only=True):
    """What is trained."""

    path: str = "tiny"
    """``tiny``, a Hugging Face id, or a local directory."""
    revision: str | None = None
    """Commit, tag or branch of a Hugging Face id."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of the weights in training and evaluation."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, more time."""
    tiny: TinyConfig = TinyConfig()
    """Read only where ``path = "tiny"``."""


class AlgorithmConfig(_Table, frozen=True, kw_only=True):
    """Estimator, loss and optimizer."""

    estimator: str = "rebn"
    """Registered advantage estimator, see ``docs/advantages.md``."""
    options: dict[str, Any] = {}
    """Options of the estimator."""
    gamma: float = 1.0
    """Discount per turn."""
    lam: float = 0.95
    """Lambda of GAE, per turn."""
    clip_low: float = 0.2
    """PPO clip, lower side; see ``clip_high``."""
    clip_high: float = 0.2
    """PPO clip: the ratio is kept in [1 - clip_low, 1 + clip_high]."""
    kl_coef: float = 0.0
    """Weight of the KL term against the initial model; 0 = no reference model."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the KL term goes."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus per action token."""
    epochs: int = 1
    """Passes over each batch."""
    minibatches: int = 1
    """Optimizer steps per pass."""
    loss_aggregation: Literal["token", "sequence", "constant"] = "token"
    """Mean over all action tokens; mean per sequence, then over sequences; sum over a constant."""
    loss_constant: int | None = None
    """Divisor per sequence of ``loss_aggregation = "constant"``."""
    lr: float = 1e-6
    """Peak learning rate of AdamW."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up: constant, or a decay to zero at the last step."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from zero."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of the two moments."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: float = 1.0
    """The gradient's norm is clipped to this."""
    critic_lr: float | None = None
    """Learning rate of the critic where the estimator needs one; None = ``lr``."""

    @property
    def schedule_name(self) -> str:
        """The schedule's name in transformers, which many trainers hand through."""
        return "constant_with_warmup" if self.lr_schedule == "constant" else self.lr_schedule


class BatchConfig(_Table, frozen=True, kw_only=True):
    """How much is collected per training step."""

    episodes: int = 128
    """Episodes per step, over all ranks."""
    group_size: int = 1
    """Episodes that share an initial state (GRPO, RLOO)."""
    micro_batch: int | None = None
    """Sequences per forward pass; None = a whole minibatch."""


class SamplingConfig(_Table, frozen=True, kw_only=True):
    """How actions are sampled in training."""

    temperature: float = 1.0
    """Divides the logits; must be positive."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens with this probability; 1 = off."""
    top_k: int = -1
    """-1 = off."""


class EvalConfig(_Table, frozen=True, kw_only=True):
    """Evaluation on held-out seeds."""

    episodes: int = 500
    """Held-out episodes before and after training; 0 = none."""
    every: int = 0
    """Also evaluate inside training every so many steps; 0 = before and after only."""
    inside_episodes: int = 64
    """Episodes of an evaluation inside training."""
    temperature: float = 1.0
    """As in sampling; 0 = the most likely token."""


class TrainConfig(_Table, frozen=True, kw_only=True):
    """Length and bookkeeping of a run."""

    steps: int = 500
    """Training steps; each collects one batch."""
    start: int = 0
    """Steps that earlier runs of the same weights have behind them: tasks go on from there."""
    save_every: int = 50
    """Checkpoint interval in steps; 0 = at the end only."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept."""
    log_episodes: int = 4
    """Episodes written to ``episodes.jsonl`` per step."""


class HardwareConfig(_Table, frozen=True, kw_only=True):
    """Where it runs."""

    device: Literal["cpu", "gpu"] = "gpu"
    """``cpu`` turns on the adapter's CPU harness; refused where a GPU is."""
    nodes: int = 1
    """Machines."""
    gpus_per_node: int = 1
    """GPUs of each machine."""
    engine: Literal["default", "hf", "vllm", "sglang"] = "default"
    """Generation engine; ``default`` is the trainer's own first choice."""

    @property
    def gpus(self) -> int:
        """GPUs of all machines; on a CPU, processes."""
        return self.nodes * self.gpus_per_node


class Recipe(_Table, frozen=True, kw_only=True):
    """One experiment. Every table is described by its class."""

    name: str
    """Name of the experiment in tables and run directories."""
    env: list[EnvConfig]
    """The environments, one ``[[env]]`` table each."""
    seed: int = 0
    """Decides the training tasks, the warm start and all sampling; 0 to 999."""
    context: ContextConfig = ContextConfig()
    limits: Limits = Limits()
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    batch: BatchConfig = BatchConfig()
    sampling: SamplingConfig = SamplingConfig()
    eval: EvalConfig = EvalConfig()
    train: TrainConfig = TrainConfig()
    hardware: HardwareConfig = HardwareConfig()
    trainer: dict[str, dict[str, Any]] = {}
    """Native keys per trainer, passed through as they are: ``[trainer.trl]`` ..."""
    sources: dict[str, str] = {}
    """Where a value comes from, by dotted key."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``recipe_from_dict`` inverts it."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @property
    def groups_per_step(self) -> int:
        """Distinct initial states per training step."""
        return self.batch.episodes // self.batch.group_size


def load_recipe(
    baseline: str | Path,
    profile: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> Recipe:
    """Read a recipe.

    Args:
        baseline: a TOML file, or the name of a shipped baseline.
        profile: a TOML file, or the name of a shipped profile.
        overrides: ``dotted.key=value`` strings; the value is TOML (a bare word is a string).

    Raises:
        RecipeError: no such file, unknown or mistyped key, impossible value.
    """
    data = _read(baseline, "baselines")
    own_profiles = data.pop("profiles", {})
    if profile is not None:
        data = merge(data, _read(profile, "profiles"))
        data = merge(data, own_profiles.get(Path(profile).stem, {}))
    for override in overrides:
        data = merge(data, parse_override(override))
    return recipe_from_dict(data)


def recipe_from_dict(data: Mapping[str, Any]) -> Recipe:
    """Build and validate a recipe from plain types. Raises RecipeError."""
    try:
        recipe = msgspec.convert(data, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(_explain(str(error))) from None
    validate(recipe)
    return recipe


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` laid on top; tables merge, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def recipe_keys(table: type[msgspec.Struct] = Recipe, prefix: str = "") -> list[str]:
    """Every dotted key of a recipe, in order; free tables (``env``, ``trainer``) are one key."""
    keys: list[str] = []
    for field in msgspec.structs.fields(table):
        name = f"{prefix}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            keys += recipe_keys(field.type, name + ".")
        else:
            keys.append(name)
    return keys


def get_key(recipe: msgspec.Struct, key: str) -> Any:
    """Value of a dotted key."""
    value: Any = recipe
    for part in key.split("."):
        value = getattr(value, part)
    return value


def validate(recipe: Recipe) -> None:
    """Check what types cannot. Raises RecipeError naming the key."""
    from gem_core.advantages import get_estimator
    from gem_core.episodes.context import get_template
    from gem_core.registration import spec

    batch, algorithm = recipe.batch, recipe.algorithm
    if not recipe.env:
        raise RecipeError("env: a recipe needs at least one [[env]] table.")
    for env in recipe.env:
        spec(env.id)
    if recipe.context.template != "chat":
        get_template(recipe.context.template)
    get_estimator(algorithm.estimator)
    _require(batch.episodes >= 1, "batch.episodes", "must be at least 1")
    _require(batch.group_size >= 1, "batch.group_size", "must be at least 1")
    _require(
        batch.episodes % batch.group_size == 0,
        "batch.episodes",
        f"{batch.episodes} is not a multiple of batch.group_size = {batch.group_size}",
    )
    _require(
        1 <= algorithm.minibatches <= batch.episodes,
        "algorithm.minibatches",
        f"must be at least 1 and at most batch.episodes = {batch.episodes}",
    )
    grouped = algorithm.estimator in ("grpo", "dr_grpo", "rloo")
    _require(
        not grouped or batch.group_size >= 2,
        "batch.group_size",
        f"estimator {algorithm.estimator!r} compares episodes of one group; set it to 2 or more",
    )
    _require(0.0 <= algorithm.gamma <= 1.0, "algorithm.gamma", "must be in [0, 1]")
    _require(0.0 <= algorithm.lam <= 1.0, "algorithm.lam", "must be in [0, 1]")
    _require(algorithm.lr > 0, "algorithm.lr", "must be positive")
    _require(recipe.train.steps >= 0, "train.steps", "must not be negative")
    _require(recipe.sampling.temperature > 0, "sampling.temperature", "must be positive")
    _require(0 <= recipe.seed < 1000, "seed", "must be in [0, 1000); see gem_core.training.tasks")
    _require(
        (algorithm.loss_aggregation == "constant") == (algorithm.loss_constant is not None),
        "algorithm.loss_constant",
        'goes with loss_aggregation = "constant" and only with it',
    )


def _require(holds: bool, key: str, message: str) -> None:
    if not holds:
        raise RecipeError(f"{key}: {message}.")


# -- files --------------------------------------------------------------------------------------


def recipe_dirs(kind: str) -> list[Path]:
    """Where shipped ``baselines`` or ``profiles`` lie: in the package, or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    return [package / "_recipes" / kind, package.parent / "recipes" / kind]


def shipped(kind: str) -> dict[str, Path]:
    """Shipped recipe files of a kind (``baselines``, ``profiles``) by name."""
    return {
        path.stem: path for folder in recipe_dirs(kind) for path in sorted(folder.glob("*.toml"))
    }


def _read(source: str | Path, kind: str) -> dict[str, Any]:
    path = Path(source)
    if path.suffix != ".toml":
        known = shipped(kind)
        if str(source) not in known:
            hint = did_you_mean(str(source), known)
            raise RecipeError(f"No {kind[:-1]} {str(source)!r}.{hint} Known: {sorted(known)}.")
        path = known[str(source)]
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"Cannot read the recipe {path}: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not valid TOML: {error}.") from None


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flatten({"actor": {"kl": {"coef": 0.1}}, "seed": 3})
    {'actor.kl.coef': 0.1, 'seed': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def parse_override(text: str) -> dict[str, Any]:
    """Nested table of one ``dotted.key=value`` override. Raises RecipeError."""
    key, sign, value = text.partition("=")
    if not sign or not re.fullmatch(r"[\w.-]+", key.strip()):
        raise RecipeError(f"Override {text!r}: write dotted.key=value.")
    for candidate in (value, f'"{value}"'):
        try:
            return tomllib.loads(f"{key} = {candidate}")
        except tomllib.TOMLDecodeError:
            continue
    raise RecipeError(f"Override {text!r}: {value!r} is not a TOML value.")


def _explain(message: str) -> str:
    """Turn msgspec's message into one that names the dotted key and guesses what was meant."""
    place = re.search(r" - at `\$\.?(.*?)`$", message)
    where = place.group(1) if place else ""
    field = re.search(r"unknown field `(.*?)`", message)
    if not field:
        text = message[: place.start()] if place else message
        return f"{where or 'recipe'}: {text}."
    key = f"{where}.{field.group(1)}" if where else field.group(1)
    known: Iterable[str] = recipe_keys()
    if where.startswith("env["):
        known = [f"{where}.{f.name}" for f in msgspec.structs.fields(EnvConfig)]
    same_table = [k for k in known if k.rpartition(".")[0] == where]
    tables = sorted({k.split(".")[0] for k in recipe_keys()})
    near = did_you_mean(key, same_table) or did_you_mean(key, [*known, *tables])
    return f"Unknown recipe key {key!r}.{near or ' See docs/recipes.md for all keys.'}"
