"""Every recipe key is translated, applied by the adapter, refused by name, or the core's own.

That each has the effect that is declared is tested in `test_key_effects.py`.
"""

from __future__ import annotations

from gem_adapters.native_keys import core_keys
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.recipe.recipe import recipe_keys


def test_every_key_is_accounted_for(config):
    groups = [config.TRANSLATED, config.APPLIED, config.REFUSED.keys(), core_keys()]
    missing = set(recipe_keys()).difference(*groups)
    assert not missing, f"in no row of the adapter's key table: {sorted(missing)}"
    assert not config.TRANSLATED & config.APPLIED
    assert not (config.TRANSLATED | config.APPLIED) & config.REFUSED.keys()


def test_translation_is_pure_and_reads_its_own_table(config, tiny):
    before = config.translate(tiny())
    assert before == config.translate(tiny()), "translate() is not a pure function"
    other = recipe_from_dict(tiny().to_dict() | {"trainer": {"nobody": {"x": 1}}})
    assert config.translate(other) == before, "another trainer's native keys leaked in"
