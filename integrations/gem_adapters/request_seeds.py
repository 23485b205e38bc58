"""The field in which sglang takes the seed of a request."""

from __future__ import annotations

from functools import cache
from inspect import signature


def sglang_seed(seed: int | None) -> dict[str, int | None]:
    """Return the sampling parameters that hand ``seed`` to sglang.

    It draws by it with ``--enable-deterministic-inference``. The dictionary is empty where the
    installed version has no such field (0.5.2 and older), because it refuses fields it does not
    know.
    """
    return {"sampling_seed": seed} if _has_field() else {}


@cache
def _has_field() -> bool:
    from sglang.srt.sampling.sampling_params import SamplingParams

    return "sampling_seed" in signature(SamplingParams).parameters
