"""Log-probabilities among the tokens that could be drawn, for ``sampling.support = "drawn"``.

OpenRLHF's model of a policy makes log-probabilities and entropies of its logits in one place, for
the update, the policy before the step's first update, and the initial model. There the logits are
restricted (`gem_adapters.support`). The sets of a row travel to updates in the label of its
`Experience`, which OpenRLHF keeps beside the row, and to scoring passes as one more argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.launcher import ReferenceModelActor

from gem_adapters.support import restricted
from gem_core.episodes.data import Support
from gem_core.errors import GemError
from gem_openrlhf.rollout import NO_ROW


def restrict(args: Any) -> None:
    """Mark OpenRLHF's arguments: log-probabilities are among the tokens that could be drawn."""
    args.train.gem_drawn = True


def is_restricted(args: Any) -> bool:
    """Return whether `restrict` marked OpenRLHF's arguments."""
    return bool(getattr(args.train, "gem_drawn", False))


def row_supports(experience: Experience) -> list[Support]:
    """Return the supports of the rows of a sample; empty for rows in which nothing was sampled."""
    return [
        episode.segments[number].support or [] if number != NO_ROW and episode.segments else []
        for episode, _, number in experience.labels
    ]


class GemReferenceModelActor(ReferenceModelActor.__ray_metadata__.modified_class):
    """The initial model."""

    def forward(
        self, *args: Any, supports: Sequence[Support] | None = None, **columns: Any
    ) -> torch.Tensor:
        """Score rows; among the tokens that could be drawn, where ``supports`` has them."""
        with scoring(self.model, supports, columns):
            logprobs: torch.Tensor = super().forward(*args, **columns)
        return logprobs


@contextmanager
def scoring(
    actor: Any, supports: Sequence[Support] | None, columns: dict[str, Any]
) -> Iterator[None]:
    """Restrict a scoring pass.

    Args:
        actor: OpenRLHF's model of a policy.
        supports: of each row; ``None`` = nothing is restricted.
        columns: what its actor's ``forward`` gets.
    """
    if supports is None:
        yield
        return
    names = ("sequences", "action_mask", "attention_mask")
    with over_drawn(actor, supports, *(columns[name] for name in names)):
        yield


def restrict_updates(trainer: Any) -> None:
    """Restrict the updates of OpenRLHF's trainer of the policy; labels are the rows' supports."""
    training_step = trainer.training_step

    def step(experience: Experience, *args: Any, **kwargs: Any) -> dict[str, Any]:
        rows = (experience.sequences, experience.action_mask, experience.attention_mask)
        with over_drawn(trainer.actor, experience.labels, *rows):
            status: dict[str, Any] = training_step(experience, *args, **kwargs)
        return status

    trainer.training_step = step


@contextmanager
def over_drawn(
    actor: Any,
    supports: Sequence[Support],
    sequences: torch.Tensor,
    action_mask: torch.Tensor,
    attention_mask: torch.Tensor,
) -> Iterator[None]:
    """Restrict one forward pass, padded or packed.

    Args:
        actor: OpenRLHF's model of a policy.
        supports: of each row, one entry for each of its tokens.
        sequences: [rows, tokens], padded on the right.
        action_mask: [rows, tokens - 1], index i of token i + 1.
        attention_mask: [rows, tokens].

    Raises:
        GemError: a row has another number of sets than of tokens, or a trained token is not in its
            set.
    """
    lengths = attention_mask.sum(dim=1).tolist()
    _require_whole(supports, lengths, action_mask)
    # The logits at a token are those of the next one.
    rows: list[Support] = [
        [*support[1:], *[None] * (length - len(support[1:]))]
        for support, length in zip(supports, lengths, strict=True)
    ]
    tokens = sequences.roll(-1, dims=1)
    trained = torch.nn.functional.pad(action_mask, (0, 1))
    if actor.packing_samples:
        present = attention_mask.bool()
        rows = [[ids for row in rows for ids in row]]
        tokens, trained = tokens[present][None], trained[present][None]
    with restricted(actor.model, rows, tokens, trained):
        yield


def _require_whole(
    supports: Sequence[Support], lengths: Sequence[int], action_mask: torch.Tensor
) -> None:
    """Raise GemError unless each trained row has a set for each of its tokens."""
    if len(supports) != len(lengths):
        raise GemError(f"The sets of {len(supports)} rows came with {len(lengths)} rows of tokens.")
    for row, (support, length) in enumerate(zip(supports, lengths, strict=True)):
        if action_mask[row].any() and len(support) != length:
            raise GemError(
                f"Row {row} has {length} tokens and the sets of {len(support)} of them: which "
                "tokens could be drawn was lost on the way to the update. Report it, and set "
                'sampling.support = "all" until then.'
            )
