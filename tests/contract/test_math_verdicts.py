"""Mathematical answers get the same verdicts in the environment of every trainer.

verl and RL2 bring antlr 4.9.3, for which math-verify has another parser than for 4.13.2. The others
have the core's versions, where `tests/graders/test_math.py` reads the same pairs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_core.envs.graders import grade_math

PAIRS = Path(__file__).parents[2] / "benchmarks" / "throughput" / "math_pairs.jsonl"


@pytest.mark.slow("trl", "openrlhf", "oat", "rl2")
def test_the_fixed_pairs_have_their_verdicts() -> None:
    for line in PAIRS.read_text().splitlines():
        pair = json.loads(line)
        verdict = grade_math(pair["answer"], pair["gold"], deadline_s=60)
        assert (verdict.correct, verdict.error) == (pair["right"], None), pair
