"""The 24 baselines: our own definition, as data (``recipes/suite.toml``).

The paper (arXiv 2510.01051) prints its list of 24 environments only in a picture, so that nobody
can say that a list is the paper's.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gem_core.errors import RecipeError
from gem_core.runs.recipe.files import recipe_dirs


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One baseline of the suite.

    Attributes:
        name: the name of its recipe, see ``gem-core list --kind baselines``.
        category: the base that its recipe has in ``recipes/bases``.
        source: where its environment or its data are from.
    """

    name: str
    category: str
    source: str


class _Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    baseline: list[Baseline]


def load_suite() -> list[Baseline]:
    """Return the baselines of the suite, in the order of the file.

    Raises:
        RecipeError: the file is missing or malformed.

    >>> load_suite()[0].name
    'guess-the-number-easy'
    """
    path = _file()
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_Suite).baseline
    except (OSError, msgspec.DecodeError) as error:
        raise RecipeError(f"Cannot read the list of baselines {path}: {error}.") from None


def _file() -> Path:
    """Return the path of the list: in the package, or in a checkout."""
    paths = [folder.parent / "suite.toml" for folder in recipe_dirs("baselines")]
    return next((path for path in paths if path.exists()), paths[-1])
