"""The reference's critic: a body with a linear head, regressed on the targets of turn-level GAE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_parity import reference_advantages
from gem_parity.recorded import Unit, Weights
from gem_parity.reference_advantages import TrainedTurns
from gem_parity.reference_batch import Action, ReferenceBatch, padded
from gem_parity.reference_loss import value_loss
from gem_parity.reference_optimizer import ReferenceAdamW
from gem_parity.traits import Traits


class ReferenceCritic:
    """V at the last prompt token of each turn, and its training.

    Args:
        recipe: the experiment.
        traits: what the trainer does in its own way.
        body: the base model; its weights are replaced.
        initial: the trainer's initial critic, see `gem_parity.recorded.StepTrace`.
    """

    def __init__(self, recipe: Recipe, traits: Traits, body: Any, initial: Weights) -> None:
        self.recipe = recipe
        self.traits = traits
        self.body = body
        dtype = next(body.parameters()).dtype
        weight = initial["head.weight"]
        self.head = torch.nn.Linear(weight.shape[1], 1, bias="head.bias" in initial).to(dtype)
        with torch.no_grad():
            for name, parameter in self.weights().items():
                parameter.copy_(torch.from_numpy(initial[name]).to(dtype))
        algorithm = recipe.algorithm
        lr = algorithm.critic_lr or algorithm.lr
        decayed = traits.value_decayed
        self.optimizer = ReferenceAdamW(recipe, traits, self.weights(), lr, decayed)
        self.targets: dict[tuple[int, int], float] = {}
        self.old: Tensor = torch.zeros(0)

    def weights(self) -> dict[str, Tensor]:
        """Return the parameters by name."""
        body = {f"body.{name}": weight for name, weight in self.body.named_parameters()}
        return body | {f"head.{name}": weight for name, weight in self.head.named_parameters()}

    def read(self, batch: ReferenceBatch, played: Sequence[TrainedTurns]) -> None:
        """Fill in the values of ``played``, and keep them and the targets for `learn`."""
        self.old = self._values(batch.token_ids).detach()
        for action in batch.actions:
            played[action.episode].values.append(float(self.old[action.row, action.start - 1]))
        self._read_ends(batch, played)
        plain = reference_advantages.gae(self.recipe.algorithm, played)
        self.targets = {
            (number, turn): advantage + value
            for number, episode in enumerate(played)
            for turn, advantage, value in zip(
                episode.turns, plain[number], episode.values, strict=True
            )
        }

    def learn(self, batch: ReferenceBatch, minibatches: Sequence[Sequence[Unit]]) -> None:
        """Make one optimizer step per minibatch."""
        self.optimizer.batch_updates = len(minibatches)
        for units in minibatches:
            self._update(batch, batch.trained(units))

    def _update(self, batch: ReferenceBatch, actions: Sequence[Action]) -> None:
        rows = [action.row for action in actions]
        places = [action.start - 1 for action in actions]
        targets = [self.targets[action.episode, action.turn] for action in actions]
        values = self._values(batch.token_ids)
        loss = value_loss(
            self.traits,
            values[rows, places],
            self.old[rows, places],
            torch.tensor(targets, dtype=values.dtype),
            clip=self.recipe.algorithm.value_clip,
            divisor=max(len(targets), 1),
        )
        loss.backward()
        self.optimizer.step()

    def _values(self, token_ids: Tensor) -> Tensor:
        """Return V after each token, [rows, tokens]."""
        values: Tensor = self.head(self.body(input_ids=token_ids)[0])[..., 0]
        return values

    def _read_ends(self, batch: ReferenceBatch, played: Sequence[TrainedTurns]) -> None:
        """Fill in the values of the states in which limits cut episodes."""
        cut = [number for number, state in enumerate(batch.states) if state]
        if self.traits.valued_ends == "continued sequences":
            cut = [n for n in cut if _continues(batch.states[n], batch.episodes[n])]
        if not cut:
            return
        values = self._values(padded([batch.states[number] for number in cut])).detach()
        for row, number in enumerate(cut):
            played[number].bootstrap = float(values[row, len(batch.states[number]) - 1])


def _continues(state: Sequence[int], episode: Episode) -> bool:
    """Return whether ``state`` begins with the last sequence of ``episode``, which trains."""
    last = [segment for segment in episode.segments if segment.spans][-1:]
    return any(
        any(segment.loss_mask) and list(state[: len(segment.token_ids)]) == segment.token_ids
        for segment in last
    )
