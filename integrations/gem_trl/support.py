"""Log-probabilities among the tokens that could be drawn, for ``sampling.support = "drawn"``.

With top-k or top-p the policy that samples is the model's distribution over a set of tokens, which
the engine reports for each token (`gem_core.episodes.data.Support`). The logits are restricted to
these sets before the softmax, wherever TRL asks for log-probabilities (`gem_trl.scoring`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import torch

from gem_core.errors import GemError

if TYPE_CHECKING:
    from gem_core.episodes.data import Episode, Segment, Support


def require_support(episodes: Iterable[Episode]) -> None:
    """Check that the support of every trained token was kept, and holds the token itself.

    Raises:
        GemError: it was not, or does not; the episode is named.
    """
    for episode in episodes:
        for segment in episode.segments:
            fault = _find_fault(segment)
            if fault:
                raise GemError(
                    f"{episode.env_id}, seed {episode.seed}, task {episode.index}: {fault} Sample "
                    'with an engine that reports it, or set sampling.support = "all".'
                )


def _find_fault(segment: Segment) -> str:
    """Return what is wrong with the support of a segment; empty = nothing."""
    if not any(segment.loss_mask):
        return ""
    if segment.support is None:
        return "the engine did not report which tokens could be drawn."
    if len(segment.support) != len(segment.token_ids):
        return f"{len(segment.support)} supports for {len(segment.token_ids)} tokens."
    for place, (token, ids) in enumerate(zip(segment.token_ids, segment.support, strict=True)):
        if segment.loss_mask[place] and ids is not None and token not in ids:
            return f"token {place} was sampled, and is not among those that could be drawn."
    return ""


def keep_mask(
    supports: Sequence[Support], width: int, vocabulary: int, device: torch.device | str
) -> torch.Tensor:
    """Return which tokens could be drawn, bool [rows, ``width``, ``vocabulary``].

    Args:
        supports: per row one entry for each of its first tokens; more than ``width`` are left out,
            and what is missing is a place where every token could be drawn.
        width: tokens of a row.
        vocabulary: number of logits.
        device: of the result.
    """
    cut = [
        (row * width + place, ids)
        for row, support in enumerate(supports)
        for place, ids in enumerate(support[:width])
        if ids is not None
    ]
    mask = torch.ones(len(supports) * width, vocabulary, dtype=torch.bool)
    places = torch.tensor([place for place, _ in cut], dtype=torch.int64)
    counts = torch.tensor([len(ids) for _, ids in cut], dtype=torch.int64)
    tokens = torch.tensor([*chain.from_iterable(ids for _, ids in cut)], dtype=torch.int64)
    mask[places] = False
    mask[places.repeat_interleave(counts), tokens] = True
    return mask.view(len(supports), width, vocabulary).to(device)


def compute_restricted(
    logits: torch.Tensor, tokens: torch.Tensor, keep: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probability and entropy of the distribution over the kept tokens.

    Args:
        logits: [rows, tokens, vocabulary], divided by the temperature.
        tokens: int64 [rows, tokens], those that were drawn.
        keep: bool, of the shape of ``logits``.

    Returns:
        Both float32 [rows, tokens].
    """
    logs = logits.float().masked_fill(~keep, -torch.inf).log_softmax(-1)
    chosen = logs.gather(-1, tokens[..., None])[..., 0]
    entropy = -(logs.exp() * logs.masked_fill(~keep, 0.0)).sum(-1)
    return chosen, entropy
