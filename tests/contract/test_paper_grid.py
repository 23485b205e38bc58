"""Every baseline of the suite, with every algorithm, in the paper's profile: the trainer's own
configuration code accepts it, and the values arrive there.

`test_native_fuzz.py` looks at every value of these cells, and of those of the other profiles.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from gem_compare.grid import ALGORITHMS, make_grid
from gem_core.runs.recipe.suite import load_suite

NATIVE = Path(__file__).parent / "native"


@pytest.fixture(scope="module")
def native(trainer_name):
    """The module that reads the trainer's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(NATIVE))
        return import_module(f"native_{trainer_name}")


@pytest.mark.slow
def test_the_trainer_accepts_every_cell_of_the_paper_profile(trainer_name, native, config):
    names = [baseline.name for baseline in load_suite()]
    cells = make_grid(names, [trainer_name], ALGORITHMS, [0])
    assert len(cells) == 24 * 4
    for cell in cells:
        recipe = cell.recipe("paper")
        assert config.translate(recipe)
        configuration = native.configuration(recipe)
        for path, expected in native.EXPECTED["algorithm.lr"](recipe).items():
            value = native.value(configuration, path)
            assert expected(value) if callable(expected) else value == expected, (cell.name, path)
