"""The tokens that could be drawn, for ``sampling.support = "drawn"``.

With top-k or top-p the policy that samples is the model's distribution over a set of tokens, which
the engine reports for each token (`gem_core.episodes.data.Support`). Where a trainer's model
computes logits, they are restricted to these sets before its own code makes log-probabilities and
entropies of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from gem_core.errors import GemError

if TYPE_CHECKING:
    from gem_core.episodes.data import Episode, Segment, Support

SUPPORT = "gem_support"
"""What an adapter asks the engine of a CPU for the sets with, and finds them at."""
LOW = -1e9
"""The logit of a token that could not be drawn. Its probability is exactly 0 in float32, and the
product of the two is 0 as well, which minus infinity would make NaN in an entropy."""


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


def restrict_logits(
    logits: torch.Tensor,
    supports: Sequence[Support],
    tokens: torch.Tensor,
    trained: torch.Tensor,
    part: tuple[int, int] = (0, 1),
) -> torch.Tensor:
    """Return the logits of the drawn tokens, and `LOW` for all others; float32.

    Args:
        logits: [rows, places, vocabulary].
        supports: per row one entry for each place, see `keep_mask`.
        tokens: int64 [rows, places], the token that each place's logits are read at.
        trained: [rows, places], not 0 where the token is trained on.
        part: which one of how many equal parts of the vocabulary the logits are.

    Raises:
        GemError: a trained token is not in the set of its place.
    """
    number, count = part
    width, vocabulary = logits.shape[1:]
    keep = keep_mask(supports, width, vocabulary * count, logits.device)
    require_drawn(keep, tokens, trained)
    keep = keep[..., number * vocabulary : (number + 1) * vocabulary]
    return logits.float().masked_fill(~keep, LOW)


@contextmanager
def restricted(model: Any, *rows: Any) -> Iterator[None]:
    """Have the model's forward passes in this block return restricted logits.

    Args:
        model: a module whose result has ``logits``; its own code is not changed.
        rows: what `restrict_logits` gets beside them.

    Raises:
        GemError: as `restrict_logits`.
    """

    def restrict(module: Any, inputs: Any, output: Any) -> Any:
        output.logits = restrict_logits(output.logits, *rows)
        return output

    handle = model.register_forward_hook(restrict)
    try:
        yield
    finally:
        handle.remove()


def require_drawn(keep: torch.Tensor, tokens: torch.Tensor, trained: torch.Tensor) -> None:
    """Check that each trained token is in the set of its place.

    Args:
        keep: as `keep_mask` returns it.
        tokens: int64 [rows, places].
        trained: [rows, places], not 0 where the token is trained on.

    Raises:
        GemError: the first one that is not, by row and place.
    """
    inside = keep.gather(-1, tokens[..., None].to(keep.device))[..., 0]
    outside = (~inside & trained.bool().to(keep.device)).nonzero()
    if len(outside):
        row, place = outside[0].tolist()
        raise GemError(
            f"{len(outside)} trained tokens are not among those that could be drawn, the first in "
            f"row {row}, place {place}: sets and tokens were shifted against each other. Report "
            'it, and set sampling.support = "all" until then.'
        )
