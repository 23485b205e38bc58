"""Checks of what an adapter says: its declaration, its tables of keys, and what it refuses.

Nothing is trained here.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.metadata import packages_distributions

from gem_adapters.native_keys import bare, core_keys
from gem_conform.candidate import Candidate
from gem_conform.changes import (
    WORLDS,
    ValueOutcome,
    all_keys,
    is_synonym,
    try_change,
    valid_changes,
)
from gem_conform.failures import NotConforming, require_none
from gem_core.errors import RecipeError
from gem_core.runs import trainers
from gem_core.runs.recipe.recipe import Recipe, recipe_keys
from gem_core.runs.tasks import step_tasks

_FRAMEWORKS = {"torch", "transformers", "ray", "vllm", "deepspeed", "accelerate"}
_NO_SUCH_KEY = "no_such_key_of_any_trainer"
_LONG_ENOUGH = 6
"""Letters of a name that still resembles itself without its last one."""


def check_declaration(candidate: Candidate) -> str:
    """The trainer is declared, can run here, and its declaration imports no framework."""
    trainer = candidate.trainer
    status = trainers.check(trainer)
    require_none("it cannot run here", list(status.problems))
    for path in (trainer.launch, trainer.translate):
        if not callable(trainers.resolve(path)):
            raise NotConforming(f"{path} is no function")
    require_none("declaring it imports", sorted(_imported(trainer)))
    return f"{trainer.distribution} {status.version}, tested {trainer.tested_range}"


def _imported(trainer: trainers.Trainer) -> set[str]:
    """Return the frameworks that a process has imported which only declares the trainer."""
    code = (
        "import sys; from gem_core.runs.trainers import get_trainer; "
        f"get_trainer({trainer.name!r}); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stdout.split()}
    own = {
        top
        for top, owners in packages_distributions().items()
        if _normal(trainer.distribution) in map(_normal, owners)
    }
    return tops & (_FRAMEWORKS | own)


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def check_keys(candidate: Candidate) -> str:
    """Every recipe key is translated, applied by the adapter, refused, or the core's own, once."""
    tables = candidate.tables
    groups = {
        "translated": set(tables.translated),
        "applied": set(tables.applied),
        "refused": set(tables.refused),
        "the core's": set(core_keys()),
    }
    known = {*recipe_keys()}
    require_none("in no row of the key table", sorted(known.difference(*groups.values())))
    require_none("no keys of a recipe", sorted(set().union(*groups.values()) - known))
    own = [key for name, keys in groups.items() if name != "the core's" for key in keys]
    require_none("in two groups", sorted(key for key, n in Counter(own).items() if n > 1))
    require_none("refused without a reason", [k for k, why in tables.refused.items() if not why])
    return ", ".join(f"{len(keys)} {name}" for name, keys in groups.items())


def check_values(candidate: Candidate) -> str:
    """Another value of a translated key has an effect, on a CPU or GPUs, or is refused by name."""
    counts: Counter[str] = Counter()
    wrong = []
    for key in sorted({*candidate.tables.translated, *candidate.tables.refused}):
        outcomes = _outcomes(candidate, key)
        if not outcomes:
            wrong.append(f"{key}: no other value of it makes a valid recipe")
        for text, found in outcomes.items():
            kinds = {outcome.kind for outcome in found}
            counts.update(kinds)
            if key in candidate.tables.refused and "effect" in kinds:
                wrong.append(f"{key} = {text} is accepted, and its row says that it is refused")
            elif "none" in kinds and not kinds & {"effect", "refused"}:
                silent = next(outcome for outcome in found if outcome.kind == "none")
                wrong.append(f"{key} = {text}: {_complaint(silent.seen)}")
    require_none("keys that are ignored", wrong)
    return f"{counts['effect']} values have an effect, {counts['refused']} are refused by name"


def _outcomes(candidate: Candidate, key: str) -> dict[str, list[ValueOutcome]]:
    """Return what came of each other value of a key, on a CPU and on GPUs."""
    node = all_keys()[key]
    outcomes: dict[str, list[ValueOutcome]] = {}
    for world in WORLDS:
        found = {
            change.text: try_change(partial(_observe, candidate), key, change)
            for change in valid_changes(world, key, node)
        }
        for text, outcome in found.items():
            if not (outcome.kind == "none" and is_synonym(node, text, found)):
                outcomes.setdefault(text, []).append(outcome)
    return outcomes


def _observe(candidate: Candidate, recipe: Recipe) -> object:
    """Return what is made of a recipe: the native configuration, and the first step's tasks."""
    return candidate.translate(recipe), step_tasks(recipe, 0)


def _complaint(seen: object) -> str:
    return f"refused without its name ({seen})" if isinstance(seen, str) else "no effect"


def check_unknown_keys(candidate: Candidate) -> str:
    """Native keys that do not exist, or that the recipe decides, are refused by name."""
    tables = candidate.tables
    _require_refusal(candidate, _NO_SUCH_KEY, [])
    for key, reason in tables.owned.items():
        _require_refusal(candidate, key, [reason])
    misspelled = list(_misspell(tables.free))
    for wrong, right in misspelled:
        _require_refusal(candidate, wrong, ["Did you mean", right])
    others = f"{len(misspelled)} misspelled ones"
    if not misspelled:
        others = f"none misspelled, as no free key has a name of {_LONG_ENOUGH} letters"
    return f"{len(tables.owned)} keys of the recipe, {others}"


def _misspell(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield free keys without their last letter, and as they are."""
    known = {bare(name) for name in names}
    for name in names:
        last = name.rpartition(".")[2]
        if not name.startswith("+") and len(last) >= _LONG_ENOUGH and bare(name)[:-1] not in known:
            yield bare(name)[:-1], bare(name)


def _require_refusal(candidate: Candidate, key: str, words: Iterable[str]) -> None:
    """Fail where ``[trainer.<name>]`` may have ``key``, or the refusal lacks a word."""
    recipe = candidate.with_native({key: 1})
    try:
        candidate.translate(recipe)
    except RecipeError as error:
        needed = [f"trainer.{candidate.name}.", *words]
        missing = [word for word in needed if word not in str(error)]
        require_none(f"the refusal of {key} ({error}) does not say", missing)
        return
    raise NotConforming(f"trainer.{candidate.name}.{key} is accepted")
