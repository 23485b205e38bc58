"""``gem-core plan``: what a recipe needs on given GPUs, before anything is started."""

from __future__ import annotations

import argparse
import shlex

from gem_core.cli.output import print_json
from gem_core.errors import MissingDependencyError, RecipeError
from gem_core.results.tables import plain_table
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import get_trainer, resolve
from gem_preflight.engine import GB
from gem_preflight.estimate import USABLE, Plan, estimate


def plan(arguments: argparse.Namespace) -> int:
    """Print the memory of an update by part; return 1 if it does not fit.

    As JSON: sizes in bytes, ``native`` (the trainer's own configuration, null where it cannot be
    made here) and ``problems``.
    """
    number, gigabytes = gpus_of(arguments.gpus)
    overrides = [*arguments.overrides, "hardware.nodes=1", f"hardware.gpus_per_node={number}"]
    recipe = load_recipe(arguments.baseline, arguments.profile, overrides)
    trainer = get_trainer(arguments.trainer)
    result = estimate(recipe, trainer.name, gigabytes)
    native, why_not = None, ""
    try:
        native = resolve(trainer.translate)(recipe)
    except MissingDependencyError as error:
        why_not = str(error)
    if arguments.json:
        data = {"recipe": recipe.name, "trainer": trainer.name, "gpus": number}
        print_json(arguments, {**data, **_data(result), "native": native, "why_not": why_not})
        return 1 if result.problems else 0
    print(_table(result))
    if why_not:
        print(f"\nNative configuration: not shown. {why_not}")
    else:
        print(f"\nNative configuration of {trainer.distribution}:\n{_native(native)}")
    for problem in result.problems:
        print(f"\nDoes not fit: {problem}")
    return 1 if result.problems else 0


def _data(result: Plan) -> dict[str, object]:
    """Return the plan as JSON's types; sizes are bytes on one GPU."""
    return {
        "fits": not result.problems,
        "parts": result.parts,
        "total": result.total,
        "usable": int(USABLE * result.capacity),
        "capacity": result.capacity,
        "moment": result.moment,
        "tokens_per_pass": result.tokens_per_pass,
        "rows_per_pass": result.rows_per_pass,
        "tokens_per_step": result.tokens_per_step,
        "cache_per_row": result.cache_per_row,
        "problems": list(result.problems),
    }


def _table(result: Plan) -> str:
    rows = [(part, f"{size / GB:.1f}") for part, size in result.parts.items()]
    rows.append(("together", f"{result.total / GB:.1f}"))
    rows.append(("may be used", f"{USABLE * result.capacity / GB:.1f}"))
    lines = (
        plain_table(("on each GPU in an update", "GB"), rows),
        "",
        f"The most is needed {result.moment}.",
        f"At most {result.tokens_per_pass} tokens ({result.rows_per_pass} of the longest rows) in "
        f"one forward pass, {result.tokens_per_step} in a training step.",
        f"In the engine one row of the longest length takes {result.cache_per_row / GB:.2f} GB of "
        "keys and values; the engine's own share of memory comes from its native setting.",
    )
    return "\n".join(lines)


def _native(native: object) -> str:
    if isinstance(native, dict):
        return "\n".join(f"  {key} = {value!r}" for key, value in sorted(native.items()))
    if isinstance(native, list):
        return "  " + shlex.join(str(argument) for argument in native)
    return f"  {native}"


def gpus_of(text: str) -> tuple[int, float]:
    """Read ``8x80``: eight GPUs of 80 GB each.

    Raises:
        RecipeError: the text is not of that form.
    """
    number, _, size = text.partition("x")
    try:
        gpus = int(number)
        gigabytes = float(size)
    except ValueError:
        gpus = 0
        gigabytes = 0.0
    if gpus < 1 or gigabytes <= 0:
        raise RecipeError(f"--gpus {text} is not NUMBERxGIGABYTES, such as 8x80.")
    return gpus, gigabytes
