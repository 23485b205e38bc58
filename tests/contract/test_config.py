"""Every recipe key is translated, applied by the adapter, refused by name, or the core's own.

That each has the effect that is declared is tested in `test_key_effects.py`.
"""

from __future__ import annotations

import pytest

from gem_conform.candidate import Candidate
from gem_conform.declared import check_keys, check_unknown_keys, check_values
from gem_core.runs.recipe.load import recipe_from_dict


@pytest.fixture
def candidate(trainer_name, tmp_path):
    return Candidate(trainer_name, tmp_path)


def test_every_key_is_accounted_for(candidate):
    check_keys(candidate)


def test_no_value_of_a_translated_or_refused_key_is_ignored(candidate):
    check_values(candidate)


def test_unknown_native_keys_are_refused_by_name(candidate):
    check_unknown_keys(candidate)


def test_translation_is_pure_and_reads_its_own_table(config, tiny):
    before = config.translate(tiny())
    assert before == config.translate(tiny()), "translate() is not a pure function"
    other = recipe_from_dict(tiny().to_dict() | {"trainer": {"nobody": {"x": 1}}})
    assert config.translate(other) == before, "another trainer's native keys leaked in"
