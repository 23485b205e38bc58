"""Log-probabilities as TRL's loss reads them: without needless padding, over the recipe's tokens.

TRL computes them of the whole vocabulary, without ever having the logits of all tokens. With
``sampling.support = "drawn"`` the model's own forward pass is used instead, whose logits are
restricted to the tokens that could be drawn: those of a pass are in memory at once.
"""

from __future__ import annotations

from typing import Any

import torch

from gem_adapters.support import keep_mask
from gem_core.episodes.data import Support
from gem_trl.padding import Scores, trimmed_scores
from gem_trl.row_passes import RowPasses
from gem_trl.support import compute_restricted

ROW = "gem_support_row"
"""Name of each row's place in `gem_trl.advantages.StepBatch.rows`, in what TRL's loss gets."""


class Scoring(RowPasses):
    """TRL's trainer, with the log-probabilities that the recipe asks for.

    TRL asks for them in three places, of the policy, of the policy before the step's first update
    and of the initial model, and all of them come through the method below.
    """

    _row_places: torch.Tensor | None = None
    _scores: Any = None
    """Log-probabilities and entropies that TRL was given last, for the update's metrics."""

    @property
    def over_drawn(self) -> bool:
        """Whether log-probabilities are over the tokens that could be drawn."""
        return self.recipe.sampling.support == "drawn"

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Scores:
        count = len(input_ids)
        passes = iter(self._find_places(count).split(batch_size or count))
        plain = super()._get_per_token_logps_and_entropies

        def score(*columns: Any) -> Scores:
            if self.over_drawn:
                return self._score_drawn(model, next(passes).tolist(), *columns, **options)
            scores: Scores = plain(model, *columns, **options)
            return scores

        scores = trimmed_scores(score, input_ids, attention_mask, logits_to_keep, batch_size)
        self._scores = scores[:2]
        return scores

    def _find_places(self, count: int) -> torch.Tensor:
        """Return the rows' places: a loss says which it has, before it the whole batch is read."""
        return torch.arange(count) if self._row_places is None else self._row_places

    def _find_supports(self, places: list[int]) -> list[Support]:
        """Return the supports of the completions of rows; empty where a row fills up a pass."""
        assert self.step_batch is not None, "the batch was played"
        rows = self.step_batch.rows
        segments = [rows[place].segment if place < len(rows) else None for place in places]
        return [(s.support or [])[s.prompt_length :] if s else [] for s in segments]

    def _score_drawn(
        self,
        model: Any,
        places: list[int],
        ids: torch.Tensor,
        mask: torch.Tensor,
        logits_to_keep: int,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **_: Any,
    ) -> Scores:
        """Score one pass of rows by the model's own logits."""
        routers = {"output_router_logits": True} if compute_aux_loss else {}
        with self.accelerator.autocast():
            outputs = model(
                input_ids=ids,
                attention_mask=mask,
                logits_to_keep=logits_to_keep + 1,
                use_cache=False,
                **routers,
            )
        logits = outputs.logits[:, -logits_to_keep - 1 : -1] / self.temperature
        keep = keep_mask(
            self._find_supports(places), logits_to_keep, logits.shape[-1], logits.device
        )
        tokens = ids[:, -logits_to_keep:].to(logits.device)
        logprobs, entropy = compute_restricted(logits, tokens, keep)
        router = outputs.aux_loss if compute_aux_loss else None
        return logprobs, entropy if compute_entropy else None, router

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._row_places = inputs.get(ROW)
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        self._row_places = None
        return loss
