"""Episodes of several rows in OpenRLHF, whose batches have a fixed number of sequences.

OpenRLHF's update with dynamic batches takes any number of sequences per rank and per pass; it asks
its buffer how they are divided. Here the buffer answers by rows: the recipe's minibatches, which
differ by one row at most, in passes of at most ``batch.micro_batch`` rows, on every rank as many.
Sequences without an action stand only where a rank has no row for a pass, or none to score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

from gem_core.episodes.data import Episode
from gem_openrlhf.metrics import PREFIX
from gem_openrlhf.rollout import NO_ROW, to_native


def count_rows(args: Any) -> None:
    """Mark OpenRLHF's arguments: an episode may have several rows."""
    args.train.dynamic_batch_enable = True
    args.train.gem_rows = True


def counts_rows(args: Any) -> bool:
    """Return whether `count_rows` marked OpenRLHF's arguments."""
    return bool(getattr(args.train, "gem_rows", False))


def row_samples(samples: Sequence[Experience], args: Any) -> list[Experience]:
    """Return a sample per segment with a trained token, and those that fill up every rank.

    Args:
        samples: one per episode, in task order.
        args: OpenRLHF's arguments.
    """
    rows = []
    for sample in samples:
        episode, state, _ = sample.labels[0]
        trained = [n for n, segment in enumerate(episode.segments) if any(segment.loss_mask)]
        for number in trained:
            # The last row alone says in which state a limit cut the episode.
            rows.append(_sample(episode, number, args, state if number == trained[-1] else None))
    ranks = scoring_ranks(args)
    whole = ranks * pass_rows(len(rows), args)
    first = samples[0].labels[0][0]
    filled = -(-max(len(rows), 1) // whole) * whole
    return rows + [_sample(first, NO_ROW, args) for _ in range(filled - len(rows))]


def scoring_ranks(args: Any) -> int:
    """Return the ranks that sequences are divided among."""
    ranks = args.actor.num_nodes * args.actor.num_gpus_per_node
    return int(ranks // args.ds.ring_attn_size // args.ds.tensor_parallel_size)


def pass_rows(rows: int, args: Any) -> int:
    """Return the sequences of a scoring pass, no more than a rank has."""
    most = -(-rows // scoring_ranks(args))
    return max(1, min(args.rollout.micro_batch_size, most))


def _sample(episode: Episode, number: int, args: Any, state: list[int] | None = None) -> Experience:
    response = to_native(episode, state, number)
    generator = object.__new__(SamplesGenerator)
    sample: Experience = generator._process_response_into_experience(
        response, max_len=args.data.max_len
    )
    return sample


def divide_by_rows(trainer: Any) -> None:
    """Have the buffer of OpenRLHF's trainer of a model divide itself as `_divide` does."""
    buffer = trainer.replay_buffer
    buffer.setup_dynamic_batch = partial(_divide, buffer)


def _divide(buffer: Any, strategy: Any) -> None:
    """Fill what OpenRLHF's update reads: passes, their divisors, and which ends a minibatch."""
    args = strategy.args
    trained = [n for n, item in enumerate(buffer.items) if bool(item.action_mask.any())]
    empty = len(buffer.items)  # a copy on which nothing is trained, for passes without a row
    first = buffer.items[0]
    buffer.items.append(replace(first, action_mask=torch.zeros_like(first.action_mask)))
    episodes = args.rollout.batch_size * args.rollout.n_samples_per_prompt
    order = torch.tensor(trained, dtype=torch.int64)[torch.randperm(len(trained))]
    minibatches = order.tensor_split(episodes // args.train.batch_size)
    tokens = [sum(float(buffer.items[n].action_mask.sum()) for n in part) for part in minibatches]
    numbers = torch.tensor([tokens, [float(len(part)) for part in minibatches]])
    most = strategy.all_reduce(numbers[1].clone(), "max")
    all_tokens, all_rows = strategy.all_reduce(numbers, "sum").tolist()
    passes = [max(1, -(-int(rows) // args.train.micro_batch_size)) for rows in most]
    divided = [
        [rows.tolist() for rows in part.tensor_split(count)]
        for part, count in zip(minibatches, passes, strict=True)
    ]
    buffer.dynamic_indices = [rows or [empty] for parts in divided for rows in parts]
    buffer.sample_batch_size = 1
    buffer.dynamic_sample_loss_scale = [
        len(rows) / max(1, sum(map(len, parts))) for parts in divided for rows in parts
    ]
    buffer.dynamic_batch_num_tokens = _repeated(all_tokens, passes)
    buffer.dynamic_global_batch_size = _repeated(all_rows, passes)
    buffer.dynamic_optimizer_step = [
        int(number == count - 1) for count in passes for number in range(count)
    ]
    filled = sum(not rows for parts in divided for rows in parts)
    buffer.gem_rows = strategy.all_reduce(torch.tensor([float(len(trained)), float(filled)]), "sum")


def _repeated(numbers: Sequence[float], counts: Sequence[int]) -> list[float]:
    pairs = zip(numbers, counts, strict=True)
    return [number for number, count in pairs for _ in range(count)]


def row_metrics(trainer: Any) -> dict[str, float]:
    """Return the number of rows of the update that a trainer made, under `PREFIX`."""
    trained, filled = trainer.replay_buffer.gem_rows.tolist()
    return {PREFIX + "rows/all": trained + filled, PREFIX + "rows/masked": filled}
