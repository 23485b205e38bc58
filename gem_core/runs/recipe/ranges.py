"""The ranges of a recipe's values, as types; msgspec checks them when a recipe is loaded."""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

from msgspec import Meta

_MOST = sys.float_info.max  # "<= the largest float" excludes infinity; no range includes NaN

AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]
AtLeastZero: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=_MOST)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0, le=_MOST)]
Finite: TypeAlias = Annotated[float, Meta(ge=-_MOST, le=_MOST)]
UnitInterval: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
"""From 0 to 1, both included."""
PositiveShare: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
"""From 0, which is excluded, to 1."""
DecayRate: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
"""From 0 to 1, which is excluded."""
Text: TypeAlias = Annotated[str, Meta(min_length=1)]
"""Not empty."""
RunSeed: TypeAlias = Annotated[int, Meta(ge=0, lt=1000)]
"""Seed of a run; `gem_core.runs.tasks` gives each of them its own seeds of tasks."""
VocabSize: TypeAlias = Annotated[int, Meta(ge=259)]
"""256 bytes and the special tokens of `gem_core.training.tiny.tokenizer` at least."""
TopK: TypeAlias = Annotated[int, Meta(ge=-1)]
"""-1 = off; 0 is refused by `gem_core.runs.recipe.checks`."""
