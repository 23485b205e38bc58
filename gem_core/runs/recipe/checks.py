"""The checks of a recipe that its types cannot express."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any

from gem_core.errors import AdvantageError, RecipeError, UnknownNameError
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.recipe.tool_entries import wanted_tools
from gem_core.runs.recipe.trust import check_trust
from gem_core.runs.recipe.worker_checks import check_workers
from gem_core.runs.redaction import is_secret_name, redact

LONGEST_NAME = 200
"""Bytes of a name of a run; file systems allow 255 for a folder's."""
LOWEST_TEMPERATURE = 0.01
"""vLLM samples at this temperature where a lower one is asked for, except 0."""
_KINDS: tuple[tuple[Any, str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a string"),
)
"""The kinds of values that are told apart in options; booleans are integers, so they are first."""


def validate(recipe: Recipe) -> None:
    """Check the values of a recipe, and that what it names is registered.

    Raises:
        RecipeError: a value is impossible; the message names the key.
        UnknownNameError: an environment, a template or an estimator does not exist.
        TrustError: it names code that no installed plugin defines, see `check_trust`.
    """
    require_name(recipe.name, "name")
    check_trust(recipe)
    _check_environments(recipe)
    _check_teacher(recipe)
    _check_context(recipe)
    _check_estimator(recipe)
    _check_batch(recipe)
    _check_hardware(recipe)
    check_workers(recipe)
    _check_eval_engine(recipe)
    _require(
        recipe.algorithm.loss_aggregation != "constant" or recipe.algorithm.loss_constant,
        "algorithm.loss_constant",
        'must be set with algorithm.loss_aggregation = "constant"',
    )
    _require(recipe.sampling.top_k != 0, "sampling.top_k", "must not be 0; -1 = off")
    tiny = recipe.model.tiny
    _require(
        recipe.model.path != "tiny" or tiny.hidden % (2 * tiny.heads) == 0,
        "model.tiny.hidden",
        f"{tiny.hidden} is not a multiple of {2 * tiny.heads}, twice model.tiny.heads: rotary "
        "positions need an even number per head",
    )


def require_name(name: str, key: str) -> None:
    """Check a name that becomes part of a folder's name.

    Raises:
        RecipeError: it could lead to another folder, or is no name of a file.
    """
    wrong = (
        "is empty"
        if not name.strip()
        else "begins with a dot"
        if name.startswith(".")
        else "has a slash"
        if "/" in name or "\\" in name
        else "has a character that is not printable"
        if not name.isprintable()
        else f"has more than {LONGEST_NAME} bytes"
        if len(name.encode()) > LONGEST_NAME
        else None
    )
    if wrong is not None:
        raise RecipeError(
            f"{key}: {name[:80]!r} {wrong}; it becomes part of the name of the run's folder, so "
            'write a plain name such as "my-run".'
        )


def refuse_secrets(table: Mapping[str, Any], key: str = "") -> None:
    """Check that a recipe has no secret: it is stored in the run, shown, and sent to trackers.

    Raises:
        RecipeError: it has one; the message names the key, not the value.
    """
    for name, value in table.items():
        inner = f"{key}{name}"
        for number, item in enumerate(value) if isinstance(value, (list, tuple)) else [(-1, value)]:
            place = inner if number < 0 else f"{inner}.{number}"
            if isinstance(item, Mapping):
                refuse_secrets(item, f"{place}.")
            elif isinstance(item, str) and redact(item, is_secret_name, str(name)) != item:
                raise RecipeError(
                    f"{place}: this looks like a secret, and a recipe is stored in the run and "
                    "shown. Set it in the environment variable that its program reads."
                )


def _check_environments(recipe: Recipe) -> None:
    """Check ids, and the names and kinds of parameters; values are checked by the environment."""
    from gem_core.env.registration import check_kwargs, spec

    if not recipe.env:
        raise RecipeError("env: a recipe needs at least one [[env]] table.")
    tables = {f"env.{number}": env for number, env in enumerate(recipe.env)}
    for number, env in enumerate(recipe.eval.env):
        tables[f"eval.env.{number}"] = env
        weight = f"eval.env.{number}.weight"
        _require(env.weight == 1, weight, "an evaluation plays all of them in turn; leave it out")
    for key, env in tables.items():
        with _named(f"{key}.id"):
            registered = spec(env.id).kwargs
        if env.kwargs:
            with _named(f"{key}.kwargs"):
                check_kwargs(env.id, env.kwargs)
        _check_kinds(f"{key}.kwargs", env.kwargs, registered)
        _check_tools(key, env)


def _check_tools(key: str, env: EnvConfig) -> None:
    """Check the names of tools, and the names and kinds of their options."""
    from gem_core.tools import check_tool

    for number, (name, options) in enumerate(wanted_tools(env, key)):
        with _named(f"{key}.tools.{number}"):
            defaults = check_tool(name, options)
        _check_kinds(f"{key}.tools.{number}", options, defaults)


def _check_teacher(recipe: Recipe) -> None:
    """Refuse a teacher or habit that an environment of the training does not have."""
    from gem_core.envs.players import require_player

    tiny = recipe.model.path == "tiny"
    table = recipe.model.tiny if tiny else recipe.model.warm_start
    for key in ("teacher", "habit"):
        with _named(f"model.tiny.{key}" if tiny else f"model.warm_start.{key}"):
            for env in recipe.env:
                require_player(getattr(table, key), env.id)


def _check_context(recipe: Recipe) -> None:
    from gem_core.runs.recipe.templates import recipe_template

    context = recipe.context
    if context.template != "chat":
        with _named("context.template"):
            recipe_template(context)
    _require(
        context.history != "window" or context.window is not None,
        "context.window",
        'must be set with context.history = "window"',
    )
    if context.history == "compact":
        _check_compact(recipe)


def _check_compact(recipe: Recipe) -> None:
    """Refuse budgets that leave no space for a turn and the request for a summary after it."""
    compact = recipe.context.compact
    limits = recipe.limits
    key = "context.compact.budget"
    most = compact.max_tokens or limits.max_tokens_per_turn
    _require(compact.budget is not None, key, 'must be set with context.history = "compact"')
    _require(
        most <= limits.max_tokens_per_turn,
        "context.compact.max_tokens",
        f"must be at most limits.max_tokens_per_turn = {limits.max_tokens_per_turn}, which engines "
        "are started with",
    )
    longest = (compact.budget or 0) + limits.max_tokens_per_turn + most
    space = limits.max_context_tokens
    _require(
        space is None or longest < space,
        key,
        "plus limits.max_tokens_per_turn plus context.compact.max_tokens must be below "
        f"limits.max_context_tokens = {space}, got {longest}: no summary could follow a turn",
    )


def _check_estimator(recipe: Recipe) -> None:
    from gem_core.advantages import check_options, estimator_options, get_estimator

    algorithm = recipe.algorithm
    with _named("algorithm.estimator"):
        get_estimator(algorithm.estimator)
    with _named("algorithm.options"):
        check_options(algorithm.estimator, algorithm.options)
    defaults = estimator_options(algorithm.estimator)
    _check_kinds("algorithm.options", algorithm.options, defaults)


@contextmanager
def _named(key: str) -> Iterator[None]:
    """Put the key before the message of an error about its value."""
    try:
        yield
    except UnknownNameError as error:
        raise UnknownNameError(f"{key}: {error}") from None
    except AdvantageError as error:
        raise RecipeError(f"{key}: {error}") from None


def _check_kinds(key: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Check that numbers are finite, and that each value is of the kind of its default."""
    for name, value in values.items():
        _require(not isinstance(value, float) or isfinite(value), f"{key}.{name}", "must be finite")
        default = defaults.get(name)
        for kind, word in _KINDS:
            if isinstance(default, kind):
                fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
                _require(fits, f"{key}.{name}", f"must be {word}, got {value!r}")
                break


def _check_batch(recipe: Recipe) -> None:
    from gem_core.advantages import estimator_needs

    batch = recipe.batch
    estimator = recipe.algorithm.estimator
    _require(
        batch.episodes % batch.group_size == 0,
        "batch.episodes",
        f"{batch.episodes} is not a multiple of batch.group_size = {batch.group_size}",
    )
    _require(
        recipe.algorithm.minibatches <= batch.episodes,
        "algorithm.minibatches",
        f"must be at most batch.episodes = {batch.episodes}",
    )
    _require(
        batch.group_size >= 2 or not estimator_needs(estimator).groups,
        "batch.group_size",
        f"algorithm.estimator = {estimator!r} compares the episodes of a group; set it to 2 or "
        "more",
    )


def _check_hardware(recipe: Recipe) -> None:
    hardware = recipe.hardware
    parallel = hardware.tensor_parallel * hardware.sequence_parallel
    for key, shared in (
        ("tensor_parallel", parallel),
        ("sequence_parallel", parallel),
        ("engine_tensor_parallel", hardware.engine_tensor_parallel),
    ):
        _require(
            getattr(hardware, key) == 1 or hardware.gpus % shared == 0,
            f"hardware.{key}",
            f"{hardware.gpus} GPUs (nodes x gpus_per_node) are not a multiple of {shared}",
        )


def _check_eval_engine(recipe: Recipe) -> None:
    """Check what engines cannot do, or were not tried with, in evaluations."""
    if recipe.eval.engine == "hf":
        return
    temperature = recipe.eval.temperature
    _require(
        temperature == 0 or temperature >= LOWEST_TEMPERATURE,
        "eval.temperature",
        f'with eval.engine = "{recipe.eval.engine}" it must be 0 or at least '
        f"{LOWEST_TEMPERATURE}, which vLLM would silently use instead",
    )
    _require(
        recipe.eval.engine == "trainer" or recipe.hardware.engine_tensor_parallel == 1,
        "hardware.engine_tensor_parallel",
        f'must be 1 with eval.engine = "{recipe.eval.engine}", whose processes have one GPU each; '
        'use eval.engine = "hf", or "trainer", whose processes have one GPU each all the same',
    )


def _require(holds: object, key: str, message: str) -> None:
    if not holds:
        raise RecipeError(f"{key}: {message}.")
