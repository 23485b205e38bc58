"""Forward passes without padding that none of their rows needs.

TRL pads all rows of a rank to the longest prompt and the longest completion among them, and each
micro-batch keeps that length. The columns that are padding in all its rows are left out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

Scores = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Log-probabilities [rows, kept], entropies [rows, kept], and the loss of a router."""


def trimmed_scores(
    score: Callable[..., Scores],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    batch_size: int | None,
) -> Scores:
    """Score rows in passes as long as the longest row in each.

    Args:
        score: scores one pass; gets ids, mask, and the number of last positions to score.
        input_ids: [rows, tokens], prompts padded on the left, completions on the right.
        attention_mask: 1 where there is a token, of the same shape.
        logits_to_keep: length of the completions.
        batch_size: rows of a pass; ``None`` = all.

    Returns:
        What TRL returns without trimming; 0 where columns were left out.
    """
    size = batch_size or len(input_ids)
    passes = []
    for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True):
        left, right = padding(mask, logits_to_keep)
        columns = slice(left, mask.shape[1] - right)
        found = score(ids[:, columns], mask[:, columns], logits_to_keep - right)
        passes.append((*(_widened(part, right) for part in found[:2]), found[2]))
    logprobs, entropies, router = zip(*passes, strict=True)
    return (
        torch.cat(logprobs),
        None if entropies[0] is None else torch.cat(entropies),
        None if router[0] is None else torch.stack(router).mean(),
    )


def padding(mask: torch.Tensor, logits_to_keep: int) -> tuple[int, int]:
    """Return how many columns are padding in all rows, on the left and on the right.

    Those on the left are of the prompts alone, and one column of the completions always stays.
    """
    used = mask.any(dim=0).long()
    prompt = mask.shape[1] - logits_to_keep
    left = int((used[:prompt].cumsum(0) == 0).sum())
    right = int((used[prompt + 1 :].flip(0).cumsum(0) == 0).sum())
    return left, right


def _widened(scores: Any, right: int) -> Any:
    return None if scores is None else pad(scores, (0, right))
