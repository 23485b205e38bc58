"""The seed of a request to an engine: a pure function of the run, the task and the turn.

It is computed only here, for all trainers. Every adapter hands it to its engine in the field that
the engine has for it, so that engines which honour it draw the same tokens from equal weights,
whatever else runs at the same time and in which order requests arrive.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

Split: TypeAlias = Literal["train", "eval"]
"""What an episode is played for."""
SEED_BITS = 63
"""Seeds are below ``2 ** 63``: vLLM and sglang keep them in signed integers of 64 bits."""


def request_seed(
    run_seed: int, split: Split, task_seed: int | None, task_index: int, turn: int
) -> int:
    """Return the seed of the request for one turn.

    Held-out episodes have keys of their own, and the same ones in every evaluation of a run
    (common random numbers): two evaluations differ by their weights alone, not by the draw.

    Args:
        run_seed: ``seed`` of the recipe.
        split: whether the episode is trained on or held out.
        task_seed: seed of ``env.reset``, shared by the episodes of a group.
        task_index: number of the episode in the run; it tells the members of a group apart.
        turn: 0-based number of the turn in its episode.
    """
    text = f"{run_seed}/{split}/{task_seed}/{task_index}/{turn}"
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)
