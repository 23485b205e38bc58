"""The update: PPO's clipped policy gradient with AdamW."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gem_adapters.update_means import UpdateMeans
from gem_plain.rows import Rows


class Learner:
    """A model, its optimizer and the settings that `gem_plain.config.translate` returned."""

    def __init__(self, model: Any, native: dict[str, Any]) -> None:
        self.model = model
        self.native = native
        self.updates = 0
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=native["lr"],
            betas=tuple(native["betas"]),
            eps=native["adam_eps"],
            weight_decay=native["weight_decay"],
        )

    def learn(self, rows: Rows, episodes: int) -> dict[str, float]:
        """Make the optimizer steps of a batch of ``episodes``; return their metrics."""
        native = self.native
        means = UpdateMeans((native["clip_low"], native["clip_high"]))
        with torch.no_grad():
            old, _ = self.logprobs(rows.ids)
        losses, norms = [], []
        for part in self.minibatches(rows, episodes):
            new, entropy = self.logprobs(rows.ids[part])
            advantages, mask = rows.advantages[part], rows.mask[part]
            loss = self.loss(new, old[part], advantages, mask)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), native["max_grad_norm"])
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.updates += 1
            losses.append(loss.item())
            norms.append(norm.item())
            seen = {"logprobs": new, "old": old[part], "advantages": advantages}
            means.add(mask=mask, entropy=entropy, rollout=rows.sampled[part], **seen)
            means.end_update()
        own = {"loss/policy": sum(losses) / len(losses), "grad_norm": sum(norms) / len(norms)}
        return {**means.finish(), **own, "lr": self.optimizer.param_groups[0]["lr"]}

    def minibatches(self, rows: Rows, episodes: int) -> list[list[int]]:
        """Return the rows of each optimizer step: equally many episodes, in their order."""
        size = episodes // self.native["minibatches"]
        parts = [
            [row for row, number in enumerate(rows.episodes) if first <= number < first + size]
            for first in range(0, episodes, size)
        ]
        return parts * self.native["epochs"]

    def logprobs(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of each token, [rows, tokens]; 0 for the first."""
        logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1].float()
        logs = torch.log_softmax(logits / self.native["temperature"], dim=-1)
        chosen = logs.gather(2, ids[:, 1:, None])[..., 0]
        entropy = -(logs.detach().exp() * logs.detach()).sum(-1)
        pad = torch.nn.functional.pad
        return pad(chosen, (1, 0)), pad(entropy, (1, 0))

    def loss(self, new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """Return the clipped surrogate loss of a minibatch."""
        native = self.native
        ratio = torch.exp(new - old)
        clipped = ratio.clamp(1 - native["clip_low"], 1 + native["clip_high"])
        gain = torch.minimum(ratio * advantages, clipped * advantages) * mask
        of_row = mask.sum(1, keepdim=True)
        if native["loss_aggregation"] == "token":
            return -gain.sum() / of_row.sum().clamp(min=1)
        divisor = of_row.clamp(min=1)
        if native["loss_aggregation"] == "constant":
            divisor = torch.full_like(of_row, native["loss_constant"])
        return -(gain / divisor).sum() / (of_row > 0).sum().clamp(min=1)

    def rate(self) -> float:
        """Return the learning rate of the coming optimizer step."""
        native = self.native
        per_step = native["epochs"] * native["minibatches"]
        warmup, total = native["warmup_steps"] * per_step, native["steps"] * per_step
        if self.updates < warmup:
            return float(native["lr"] * self.updates / warmup)
        left = (total - self.updates) / max(1, total - warmup)
        factors = {"constant": 1.0, "linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2}
        return float(native["lr"] * factors[native["lr_schedule"]])
