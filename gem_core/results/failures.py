"""Evaluation episodes that failed: they count as not solved, so that a score must name them."""

from __future__ import annotations

from collections.abc import Mapping

from gem_core.episodes.data import StopReason


def count_failures(evaluation: Mapping[str, float]) -> dict[str, int]:
    """Return how many episodes of an evaluation failed, by reason; empty where none did.

    A failure is not the policy's decision: an environment that raised or did not answer, an abort.

    >>> count_failures({"episodes": 200.0, "stop/deadline": 0.255, "stop/terminated": 0.745})
    {'deadline': 51}
    """
    count = evaluation.get("episodes", 0.0)
    shares = {
        reason.value: evaluation.get(f"stop/{reason.value}", 0.0)
        for reason in StopReason
        if reason.failed
    }
    return {name: round(share * count) for name, share in shares.items() if share > 0}
