"""The policy as GRPOLoss takes it."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.modules.llm import TransformersWrapper


class Tempered(torch.nn.Module):
    """A causal language model whose logits are divided by the sampling temperature."""

    def __init__(self, model: Any, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, ids: Tensor, attention_mask: Tensor, **generation: Any) -> dict[str, Tensor]:
        """Return the logits; TorchRL also passes its keys of generation, which have no part."""
        logits = self.model(ids, attention_mask=attention_mask, use_cache=False).logits
        return {"logits": logits.float() / self.temperature}


class Actor(TransformersWrapper):
    """TorchRL's policy over token ids; it keeps the distribution that the loss asked for last."""

    def __init__(self, model: Any, tokenizer: Any, temperature: float) -> None:
        tempered = Tempered(model, temperature)
        kind = {"input_mode": "tokens", "generate": False, "pad_output": True}
        super().__init__(tempered, tokenizer=tokenizer, **kind)
        self.last: Any = None

    def _get_rlhf_dist(self, tensordict: TensorDictBase, **kwargs: Any) -> Any:
        self.last = super()._get_rlhf_dist(tensordict, **kwargs)
        return self.last

    @torch.no_grad()
    def logprobs(self, rows: TensorDictBase) -> Tensor:
        """Return the log-probability of each token, [rows, tokens]."""
        logprobs: Tensor = self(rows.copy())["log_probs", "full"]
        return logprobs
