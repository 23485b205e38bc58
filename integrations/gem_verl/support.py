"""Log-probabilities among the tokens that could be drawn, for ``sampling.support = "drawn"``.

verl's engine makes log-probabilities and entropies of a micro-batch's logits in one place, for the
update, the policy before the step's first update, and the initial model. There the logits are
restricted (`gem_adapters.support`). The sets of a row are one more of its fields, which verl
stores, selects and divides with the row.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import wraps
from typing import Any

import torch
from tensordict import TensorDict
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from gem_adapters.support import SUPPORT, restrict_logits
from gem_core.episodes.data import Support
from gem_core.errors import GemError
from gem_verl.values import DRAWN_PLUGIN


def encode(support: Support) -> list[int]:
    """Return the sets of a response as one list: of each token, how many, and their ids.

    A token of which nothing was cut off has -1.
    """
    numbers: list[int] = []
    for ids in support:
        numbers.append(-1 if ids is None else len(ids))
        numbers.extend(ids or ())
    return numbers


def decode(numbers: Sequence[int]) -> Support:
    """Return what `encode` was given."""
    support: Support = []
    place = 0
    while place < len(numbers):
        count = numbers[place]
        first = place + 1
        place = first + max(count, 0)
        support.append(None if count < 0 else array("i", numbers[first:place]))
    return support


def install() -> None:
    """Restrict the logits of engines whose model names `DRAWN_PLUGIN`; once per process."""
    original = FSDPEngineWithLMHead.prepare_model_outputs
    if getattr(original, "gem", False):
        return

    @wraps(original)
    def prepare_model_outputs(
        self: Any,
        output: Any,
        output_args: Any,
        micro_batch: TensorDict,
        *rest: Any,
        **options: Any,
    ) -> Any:
        if self.model_config.external_lib == DRAWN_PLUGIN:
            output.logits = _restrict(output.logits, micro_batch)
        return original(self, output, output_args, micro_batch, *rest, **options)

    prepare_model_outputs.gem = True  # type: ignore[attr-defined]
    FSDPEngineWithLMHead.prepare_model_outputs = prepare_model_outputs


def _restrict(logits: torch.Tensor, rows: TensorDict) -> torch.Tensor:
    """Return restricted logits, [rows, tokens, vocabulary], or of packed rows [1, ...].

    Raises:
        GemError: a row has another number of sets than of sampled tokens, or a trained token is not
            in its set.
    """
    if SUPPORT not in rows:
        raise _lost("the rows have no sets")
    names = ("input_ids", "responses", "response_mask", SUPPORT)
    columns = zip(*(rows[name].unbind() for name in names), strict=True)
    placed = [_at_logits(*row) for row in columns]
    supports, tokens, trained = (list(column) for column in zip(*placed, strict=True))
    if len(placed) > 1 and logits.shape[0] == 1:  # packed
        supports = [[ids for row in supports for ids in row]]
        tokens, trained = [torch.cat(tokens)], [torch.cat(trained)]
    width = logits.shape[1]
    padded = [
        torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in column])
        for column in (tokens, trained)
    ]
    return restrict_logits(logits, supports, *padded)


def _at_logits(
    ids: torch.Tensor, response: torch.Tensor, mask: torch.Tensor, numbers: torch.Tensor
) -> tuple[Support, torch.Tensor, torch.Tensor]:
    """Return sets, tokens and mask of a row at the places whose logits they are read at."""
    before = len(ids) - len(response)
    support: Support = [None] * len(response)
    if mask.any():  # else a row that fills up a batch
        support = decode(numbers.tolist())
        if len(support) != len(response):
            raise _lost(f"a response of {len(response)} tokens has {len(support)} sets")
    places: Support = [*[None] * (before - 1), *support, None]  # of the last one nothing is read
    return places, ids.roll(-1), torch.nn.functional.pad(mask, (before - 1, 1))


def _lost(what: str) -> GemError:
    return GemError(
        f"Which tokens could be drawn was lost on the way to verl's engine: {what}. Report it, and "
        'set sampling.support = "all" until then.'
    )
