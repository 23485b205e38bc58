"""Log-probabilities among the tokens that could be drawn, for ``sampling.support = "drawn"``.

Oat's learner makes log-probabilities and entropies of a pass's logits in one place, for the update,
the policy before the step's first update, and the initial model. There the logits are restricted
(`gem_adapters.support`). The sets are in the rows of Oat's batch (`gem_oat.rows.Row`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gem_adapters.support import restricted
from gem_core.episodes.data import Support
from gem_core.errors import GemError
from gem_oat.rows import SegmentRow


@contextmanager
def over_drawn(model: Any, rows: Sequence[SegmentRow], input_ids: torch.Tensor) -> Iterator[None]:
    """Restrict one forward pass.

    Args:
        model: Oat's model of a policy.
        rows: those of the pass, in its order.
        input_ids: [rows, tokens] of the pass.

    Raises:
        GemError: a trained turn has another number of sets than of tokens, or a trained token is
            not in its set.
    """
    supports: list[Support] = [[None] * input_ids.shape[1] for _ in rows]
    trained = torch.zeros_like(input_ids)
    for index, row in enumerate(rows):
        for turn in row.trained:
            if len(turn.support) != len(turn.response):
                raise GemError(
                    f"Turn {turn.turn} of episode {turn.episode} has {len(turn.response)} tokens "
                    f"and the sets of {len(turn.support)} of them: which tokens could be drawn was "
                    'lost on the way to the update. Report it, and set sampling.support = "all" '
                    "until then."
                )
            supports[index][turn.action] = turn.support
            trained[index, turn.action] = 1
    with restricted(model, supports, input_ids.roll(-1, dims=1), trained):
        yield
