"""Log-probabilities among the tokens that could be drawn, for ``sampling.support = "drawn"``.

`gem_trl.scoring` asks for them wherever TRL does; `gem_adapters.support` says what the sets are.
"""

from __future__ import annotations

import torch


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
