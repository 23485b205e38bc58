"""Every key of a recipe has an effect, or is refused by name, in the trainer under test.

The keys, and other values for them, come from the types (`gem_conform.changes`). Each value
is tried on a recipe for a CPU and on one for GPUs, together with what the key needs. An effect is a
difference in what is made of the recipe: the native configuration, tasks, machines, workers,
advantages and more (`effects/core.py`, `effects/built_<trainer>.py`), or what a run is seen to do
(`effects/in_run.py`). That the adapter declares a key is none.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from transformers import AutoTokenizer

from gem_adapters.native_keys import core_keys
from gem_conform import changes
from gem_conform.changes import WORLDS
from gem_core.errors import GemError
from gem_core.runs.recipe.key_needs import ENV_NEEDS, NEEDS
from gem_core.runs.recipe.load import load_recipe, override
from gem_core.training.tiny import model_path

from .effects import core
from .effects.in_run import IN_RUN

ELSEWHERE = {
    "algorithm.rollout_correction": "test_rollout_correction.py",
    "sampling.refresh_turns": "test_staleness.py",
    "sampling.staleness": "test_staleness.py",
    "sampling.support": "test_support.py",
    "train.save_minutes": "test_stopping.py",
}
"""Key -> the file whose tests show its effect in the trainer, with its name in their overrides."""
REFUSED_SO_FAR = {"oat": ["hardware.nodes"]}
"""Keys whose values are refused in this recipe: Oat's nodes need native keys of each machine."""
NOT_OF_A_RUN = {"trainer", "sources"}
"""Keys with nothing to try: native keys have tests of their own, and ``sources`` is a comment."""
KEYS = changes.all_keys()
CHAT = (
    "{% for tool in tools or [] %}<tool>{{ tool.function.name }}</tool>{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    """That of the tiny model, with a chat template that describes tools."""
    loaded = AutoTokenizer.from_pretrained(model_path(load_recipe("guess-the-number-easy", "tiny")))
    loaded.chat_template = CHAT
    return loaded


@pytest.fixture(scope="module")
def observe(config, trainer_name, tokenizer, model_dir, tmp_path_factory):
    """``observe(recipe, of_core)``: everything that is made of a recipe, by name."""
    built = import_module(f"{__package__}.effects.built_{trainer_name}").built
    folder = tmp_path_factory.mktemp("run")

    def of_core(recipe):
        return {
            "machines": core.machines(recipe, tokenizer),
            "workers": core.workers(recipe),
            "evaluation": core.evaluation(recipe),
            "trackers": core.trackers(SimpleNamespace(recipe=recipe, path=folder)),
            "tiny": core.tiny(recipe),
            "source": core.source(recipe),
        }

    def look(recipe, by_core):
        run = SimpleNamespace(recipe=recipe, path=folder)
        seen = {
            "native": config.translate(replace(recipe, name="-" if by_core else recipe.name)),
            "built": built(recipe, model_dir),
            "tasks": core.tasks(recipe),
            "saves": core.saves(run),
            "advantages": core.advantages(recipe),
        }
        return seen | (of_core(recipe) if by_core else {})

    return look


def is_of_core(key):
    """Whether the core carries out a key, so that more than the adapter is observed."""
    return key in core_keys() or key.startswith(("env.0.", "eval.env.0."))


@pytest.fixture(scope="module")
def outcomes(observe):
    """What came of all values of all keys: world and key -> text -> outcome."""
    found = {}
    for world in WORLDS:
        for key in KEYS.keys() - NOT_OF_A_RUN:
            look = partial(observe, by_core=is_of_core(key))
            found[world, key] = {
                change.text: changes.try_change(look, key, change)
                for change in changes.valid_changes(world, key, KEYS[key])
            }
    return found


def test_every_key_is_tried(outcomes):
    """Of each key at least one other value makes a valid recipe, on a CPU or on GPUs."""
    tried_keys = {key for (_, key), of_key in outcomes.items() if of_key}
    assert tried_keys == KEYS.keys() - NOT_OF_A_RUN


def test_no_value_of_any_key_is_ignored(outcomes):
    ignored = {
        (world, key, text): result.seen if isinstance(result.seen, str) else "no effect"
        for (world, key), of_key in outcomes.items()
        for text, result in of_key.items()
        if result.kind == "none"
        and key not in IN_RUN.keys() | ELSEWHERE.keys()
        and not changes.is_synonym(KEYS[key], text, of_key)
    }
    assert ignored == {}


def test_keys_that_are_not_refused_have_an_effect(outcomes, config, trainer_name):
    """Some value of each key does something; of choices, all others may be refused."""
    without = set()
    for key in KEYS.keys() - NOT_OF_A_RUN - IN_RUN.keys() - ELSEWHERE.keys():
        results = [r for world in WORLDS for r in outcomes[world, key].values()]
        if any(result.kind == "effect" for result in results):
            continue
        if key in REFUSED_SO_FAR.get(trainer_name, ()):
            assert {result.kind for result in results} == {"refused"}, key
            continue
        refusing = {name for name in config.REFUSED if any(name in str(r.seen) for r in results)}
        if not refusing and not hasattr(KEYS[key], "values"):
            without.add(key)
    assert without == set()


def test_refused_keys_are_refused_with_every_value(outcomes, config):
    """A key that can only be set with another refused one needs no value of its own."""
    kinds = {key: set() for key in config.REFUSED}
    for key in config.REFUSED:
        for world in WORLDS:
            kinds[key] |= {result.kind for result in outcomes[world, key].values()}
    assert {key for key, found in kinds.items() if not found or "effect" in found} == set()


def test_the_tables_of_these_tests_have_no_stale_entries():
    assert changes.VALUES.keys() | changes.SIZES.keys() | changes.ALSO.keys() <= KEYS.keys()
    assert not changes.VALUES.keys() & changes.SIZES.keys()
    assert IN_RUN.keys() | ELSEWHERE.keys() | NOT_OF_A_RUN <= KEYS.keys()
    assert changes.MEETS.keys() == {need.keys for need in (*NEEDS, *ENV_NEEDS)}
    here = Path(__file__).parent
    for key, name in ELSEWHERE.items():
        assert f"{key}=" in (here / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("key", sorted(changes.VALUES.keys() - NOT_OF_A_RUN))
def test_values_are_given_only_where_the_type_has_none(key):
    """What the types give is not possible."""
    for world in WORLDS:
        start = changes.start_of(world, key)
        for text in changes.derive(KEYS[key], changes.value_of(start, key)):
            with pytest.raises(GemError):
                override(start, [f"{key}={text}"])
