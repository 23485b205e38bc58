"""Forward passes that take as many sequences as fit into a number of tokens, and stay within it.

OpenRLHF counts the passes by filling one after the other, and then divides the sequences evenly,
which may put more tokens into one of them than allowed; it also rounds the number of passes down to
a multiple of the ranks. And it has DeepSpeed make one pass per update, of which DeepSpeed keeps the
last gradient only. All three are repaired here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openrlhf.trainer.ppo_utils import replay_buffer
from openrlhf.utils.seqlen_balancing import (
    get_minimum_num_micro_batch_size,
    get_seqlen_balanced_partitions,
)


def divide(lengths: Sequence[int], most: int, ranks: int = 1) -> list[list[int]]:
    """Divide sequences among forward passes of at most ``most`` tokens each.

    Args:
        lengths: tokens of each sequence; none has more than ``most``.
        most: tokens of a forward pass.
        ranks: the number of passes becomes a multiple of it; so is that of the sequences.

    Returns:
        the places of the sequences of each pass.
    """
    fewest = int(get_minimum_num_micro_batch_size(lengths, most, 1, 1))
    count = -(-fewest // ranks) * ranks
    while True:
        parts: list[list[int]] = get_seqlen_balanced_partitions(list(lengths), count, False)
        if max(sum(lengths[place] for place in part) for part in parts) <= most:
            return parts
        count += ranks


def keep_within_limit() -> None:
    """Have OpenRLHF's buffers in this process make as many forward passes as `divide`."""
    replay_buffer.get_minimum_num_micro_batch_size = _count


def _count(lengths: Sequence[int], most: int, *_: int) -> int:
    return len(divide(lengths, most))


def mark_last_pass(trainer: Any, engine: Any, number: int) -> None:
    """Tell DeepSpeed whether forward pass ``number`` is the last one before an update.

    Args:
        trainer: OpenRLHF's trainer of the policy or the critic.
        engine: DeepSpeed's engine of its model.
        number: counts from 0 in a pass over the buffer.
    """
    if trainer.args.train.dynamic_batch_enable:
        last = bool(trainer.replay_buffer.dynamic_optimizer_step[number])
        engine.set_gradient_accumulation_boundary(last)
