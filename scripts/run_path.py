#!/usr/bin/env python3
"""Count the places that a recipe passes on its way through a run: ``python scripts/run_path.py``.

One small run (evaluate, train a step, evaluate) is made in this process, and the interpreter
reports every call. The same rules hold for every version of gem-core:

place
    A function of gem_core or of an adapter that a function of another module calls with the recipe
    as an argument: with a changed copy of it, or with a record (a dataclass or ``msgspec.Struct``)
    that has it as a field, too. A module that calls the same function is another place, since it
    asks again; calls inside a module are its own matter. ``self`` does not count, nor do functions
    of the recipe's own module, which read it. However often a call is made, it is one place. An
    adapter's table of keys is one place, too: the functions in its rows are data of the table.
package
    The folder of the module that is called: ``gem_core.runs``, ``gem_core.runs.environments`` and
    ``gem_trl`` are three.
climb
    The places are put in the order in which they are reached first. A climb is a place whose entry
    of the map (`scripts/import_graph.py: LAYERS`) is above that of the place before it; adapters
    stand above the core.

The tiny model is made before, as it is made once for many runs. Calls in other processes are not
seen: take a trainer that trains where it is launched (TRL, on a CPU). ``--places`` lists every
place with its layer and its number of calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import threading
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import import_graph
import msgspec

from gem_adapters.key_table import KeyTable
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.experiment import run_experiment
from gem_core.training.tiny import model_path

SETTINGS = ("train.steps=1", "eval.episodes=2", "batch.episodes=4")
TABLES = KeyTable.__module__
_VARARGS, _VARKEYWORDS = 0x04, 0x08


class Place(NamedTuple):
    """A function that is handed the recipe.

    Attributes:
        caller: the module that calls it; ``""`` for this script.
        module: its own module.
        name: its qualified name.
    """

    caller: str
    module: str
    name: str

    def package(self) -> str:
        """Return the folder of the module, with dots."""
        found = find_spec(self.module)
        folder = found is not None and found.submodule_search_locations is not None
        return self.module if folder else self.module.rpartition(".")[0]

    def layer(self) -> int:
        """Return the layer of the module's entry of the map; an adapter's is the highest."""
        if not self.module.startswith("gem_core."):
            return len(import_graph.LAYERS)
        return import_graph.level(import_graph.entry_of(self.module))


def has_recipe(value: Any) -> bool:
    """Return whether a value is a recipe, or a record with one as a field.

    >>> has_recipe(("a", 1)), has_recipe(load_recipe("guess-the-number-easy", "tiny"))
    (False, True)
    """
    if isinstance(value, Recipe):
        return True
    if isinstance(value, msgspec.Struct):
        names: Any = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
    else:
        return False
    return any(isinstance(getattr(value, name, None), Recipe) for name in names)


class Calls:
    """Counts the calls that hand on the recipe, by place, inside a ``with`` block.

    Args:
        root: the checkout; functions of its packages count.
    """

    def __init__(self, root: Path) -> None:
        self.places: dict[Place, int] = {}
        self._roots = (f"{root / 'gem_core'}/", f"{root / 'integrations'}/")

    def __enter__(self) -> Calls:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._counts(frame) or not any(map(has_recipe, arguments(frame))):
            return
        caller = frame.f_back
        while caller is not None and not self._counts(caller):
            caller = caller.f_back
        origin = "" if caller is None else caller.f_globals["__name__"]
        # Lambdas and comprehensions are part of the function that they are written in.
        name = frame.f_code.co_qualname.partition(".<")[0]
        place = Place(origin, frame.f_globals["__name__"], name)
        if place.caller != TABLES and place.module not in (place.caller, Recipe.__module__):
            self.places[place] = self.places.get(place, 0) + 1

    def _counts(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._roots)


def arguments(frame: FrameType) -> list[Any]:
    """Return the values with which the function of a frame was called, without ``self``."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    names = [name for name in code.co_varnames[:count] if name not in ("self", "cls")]
    return [frame.f_locals[name] for name in names if name in frame.f_locals]


def climbs(places: list[Place]) -> int:
    """Return how many places are above the place that was reached before them."""
    return sum(after.layer() > before.layer() for before, after in pairwise(places))


def passed(recipe: Recipe, trainer: str, folder: Path, root: Path) -> dict[Place, int]:
    """Make a run in ``folder``; return its places in their order, with the number of calls."""
    model_path(recipe)
    with Calls(root) as calls:
        run_experiment(recipe, trainer, folder)
    return calls.places


def main() -> None:
    """Make the run and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainer", default="trl")
    parser.add_argument("--baseline", default="guess-the-number-easy")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--places", action="store_true", help="list them too")
    options = parser.parse_args()
    recipe = load_recipe(options.baseline, "tiny", [*SETTINGS, *options.overrides])
    with tempfile.TemporaryDirectory() as folder:
        found = passed(recipe, options.trainer, Path(folder) / "run", import_graph.ROOT)
    if options.places:
        for place, calls in found.items():
            print(f"{place.layer():2} {calls:3} {place.caller} -> {place.module}: {place.name}")
    packages = {place.package() for place in found}
    print(f"{len(found)} places, {len(packages)} packages, {climbs([*found])} climbs")


if __name__ == "__main__":
    main()
