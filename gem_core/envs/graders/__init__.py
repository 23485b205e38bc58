"""Graders of answers. They need no environment and can be called from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_core.envs.graders.code import CodeVerdict, grade_code
    from gem_core.envs.graders.math import MathVerdict, grade_math
    from gem_core.envs.graders.qa import exact_match, f1_score, normalise_answer

_MODULES = {
    "CodeVerdict": "code",
    "MathVerdict": "math",
    "exact_match": "qa",
    "f1_score": "qa",
    "grade_code": "code",
    "grade_math": "math",
    "normalise_answer": "qa",
}

__all__ = [
    "CodeVerdict",
    "MathVerdict",
    "exact_match",
    "f1_score",
    "grade_code",
    "grade_math",
    "normalise_answer",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'gem_core.envs.graders' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gem_core.envs.graders.{module}"), name)
