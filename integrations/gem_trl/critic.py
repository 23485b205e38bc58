"""A critic for trainers that have none: V at the last prompt token of each turn.

A copy of the policy's body under a linear head that starts at zero, with an optimizer of its own.
Each rank holds the whole critic and reads its own episodes; gradients are summed over ranks.
It needs torch and transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from transformers import AutoModel, get_scheduler

from gem_core.episodes.data import Episode
from gem_core.training.recipe import Recipe

FILE = "critic.pt"
"""Name of the critic in a checkpoint."""


class Ranks(Protocol):
    """The processes of a run; ``accelerate.Accelerator`` is one."""

    @property
    def device(self) -> torch.device:
        """Device of this process."""

    def reduce(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        """The sum of ``tensor`` over the processes, for ``reduction = "sum"``."""

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision in which models compute."""


class States(NamedTuple):
    """Where the critic reads an episode.

    Attributes:
        token_ids: the episode, up to the state in which a limit cut it off.
        positions: of the last prompt token of each turn, and of that state.
        cut: whether there is such a state.
    """

    token_ids: list[int]
    positions: list[int]
    cut: bool

    @classmethod
    def of(cls, episode: Episode, bootstrap_state: list[int]) -> States:
        """The states of ``episode``, whose history only grows; ``bootstrap_state`` may be empty."""
        spans = [span for segment in episode.segments for span in segment.spans]
        ids = bootstrap_state or (episode.segments[-1].token_ids if spans else [])
        ends = [len(ids) - 1] if bootstrap_state else []
        return cls(list(ids), [start - 1 for _, start, _ in spans] + ends, bool(bootstrap_state))


class TurnCritic:
    """Values of states, and their regression on the targets of turn-level GAE.

    Args:
        recipe: the optimizer; ``critic_lr`` is its rate, else that of the policy.
        source: what ``from_pretrained`` takes for the policy.
        ranks: the processes that share the critic.
    """

    def __init__(self, recipe: Recipe, source: str, ranks: Ranks) -> None:
        self.recipe, self.ranks = recipe, ranks
        algorithm, revision = recipe.algorithm, recipe.model.revision
        body = AutoModel.from_pretrained(source, revision=revision).float()
        head = torch.nn.Linear(body.config.hidden_size, 1, bias=False)
        torch.nn.init.zeros_(head.weight)
        self.model = torch.nn.ModuleList([body, head]).to(ranks.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=algorithm.critic_lr or algorithm.lr,
            betas=algorithm.betas, weight_decay=algorithm.weight_decay,
        )  # fmt: skip
        self.passes = algorithm.epochs * algorithm.minibatches
        self.scheduler = get_scheduler(
            algorithm.schedule_name, self.optimizer, algorithm.warmup_steps * self.passes,
            max(recipe.train.steps, 1) * self.passes,
        )  # fmt: skip

    def read(self, states: Sequence[States]) -> list[np.ndarray]:
        """Values of the states of each episode, float64 [positions]."""
        with torch.no_grad():
            values = [self._values(part).double().cpu().numpy() for part in self._parts(states)]
        ends = np.cumsum([len(s.positions) for s in states])
        return np.split(np.concatenate(values), ends[:-1])

    def learn(self, states: Sequence[States], targets: Sequence[np.ndarray]) -> float:
        """As many passes as the policy has updates; returns the loss of the first.

        Args:
            states: of this rank's episodes.
            targets: one value per turn of each, NaN where a turn is excluded.

        Returns:
            Half the squared error, mean over the turns of all ranks.
        """
        padded = [
            np.append(values, [np.nan] * state.cut)
            for state, values in zip(states, targets, strict=True)
        ]
        count = self._total(sum(int(np.isfinite(values).sum()) for values in padded))
        losses = [self._update(states, padded, max(count, 1.0)) for _ in range(self.passes)]
        return losses[0]

    def save(self, folder: Path) -> None:
        """Write the critic beside a checkpoint of the policy."""
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        partial = folder / f"{FILE}.partial"
        torch.save({name: part.state_dict() for name, part in parts.items()}, partial)
        partial.rename(folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        found = torch.load(folder / FILE, map_location=self.ranks.device, weights_only=True)
        for part in ("model", "optimizer", "scheduler"):
            getattr(self, part).load_state_dict(found[part])

    def _update(self, states: Any, targets: Sequence[np.ndarray], count: float) -> float:
        """One optimizer step on the whole batch."""
        loss, first = 0.0, 0
        for part in self._parts(states):
            wanted = torch.from_numpy(np.concatenate(targets[first : first + len(part)]))
            wanted = wanted.to(self.ranks.device, torch.float32)
            known = wanted.isfinite()
            error = (self._values(part) - wanted)[known].square().sum() / (2 * count)
            error.backward()
            loss, first = loss + error.item(), first + len(part)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = self.ranks.reduce(parameter.grad, "sum")
        torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), self.recipe.algorithm.max_grad_norm or float("inf")
        )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        return self._total(loss)

    def _parts(self, states: Sequence[States]) -> list[Sequence[States]]:
        size = self.recipe.batch.micro_batch or len(states)
        return [states[first : first + size] for first in range(0, len(states), size)]

    def _values(self, states: Sequence[States]) -> torch.Tensor:
        """Values of all positions, one after the other; padding is behind what is read."""
        ids = torch.zeros(len(states), max(len(s.token_ids) for s in states) or 1, dtype=torch.long)
        for row, state in enumerate(states):
            ids[row, : len(state.token_ids)] = torch.tensor(state.token_ids)
        places = [(row, p) for row, state in enumerate(states) for p in state.positions]
        rows, positions = torch.tensor(places, dtype=torch.long).reshape(-1, 2).unbind(1)
        body, head = self.model
        with self.ranks.autocast():
            hidden = body(input_ids=ids.to(self.ranks.device), use_cache=False)[0]
            values: torch.Tensor = head(hidden[rows, positions])[:, 0].float()
        return values

    def _total(self, number: float) -> float:
        device = self.ranks.device
        total = torch.tensor(number, dtype=torch.float64, device=device)
        return float(self.ranks.reduce(total, "sum"))
