"""Train a critic beside TRL's policy, since TRL has none: V at each turn's last prompt token.

A copy of the policy's body under a linear head that starts at zero, with an optimizer of its own.
Each rank holds the whole critic and reads its own episodes; gradients are summed over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from transformers import AutoModel, TrainerCallback, get_scheduler

from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe

if TYPE_CHECKING:
    from gem_trl._compat import GRPOTrainer

_Item = TypeVar("_Item")
FILE = "critic.pt"
"""Name of the critic in a checkpoint."""


class States(NamedTuple):
    """Where the critic reads an episode: in one row of tokens, or in several.

    Attributes:
        token_ids: of the last row, up to the state in which a limit cut the episode off.
        positions: of the last prompt token of each of its turns, and of that state.
        truncated: whether there is such a state.
        earlier: the rows before, in time order, of a history that is rewritten.
    """

    token_ids: list[int]
    positions: list[int]
    truncated: bool
    earlier: tuple[States, ...] = ()

    @property
    def rows(self) -> tuple[States, ...]:
        """All rows, in time order; the last one stands for the episode."""
        return (*self.earlier, self)

    @property
    def size(self) -> int:
        """Number of states."""
        return sum(len(row.positions) for row in self.rows)

    @classmethod
    def of(cls, episode: Episode, bootstrap_state: list[int]) -> States:
        """Return the states of an episode.

        Args:
            episode: a finished one.
            bootstrap_state: tokens up to the state in which a limit cut it off; empty without one.
        """
        rows = [
            cls(list(segment.token_ids), [start - 1 for _, start, _ in segment.spans], False)
            for segment in episode.segments
            if segment.spans
        ] or [cls([], [], False)]
        if bootstrap_state:
            before = rows[-1].token_ids
            continued = bootstrap_state[: len(before)] == before
            positions = rows.pop().positions if continued else []
            end = len(bootstrap_state) - 1
            rows.append(cls(list(bootstrap_state), [*positions, end], True))
        return rows[-1]._replace(earlier=tuple(rows[:-1]))


class Example(NamedTuple):
    """What the critic learns from an episode; arrays are float64, one number per position.

    Attributes:
        states: where it reads the episode.
        values: what it read there at the beginning of the training step.
        targets: NaN where there is none.
    """

    states: States
    values: np.ndarray
    targets: np.ndarray

    def by_row(self) -> list[Example]:
        """Return an example for each row of the episode."""
        rows = self.states.rows
        ends = np.cumsum([len(row.positions) for row in rows])[:-1]
        parts = zip(rows, np.split(self.values, ends), np.split(self.targets, ends), strict=True)
        return [Example(row._replace(earlier=()), *numbers) for row, *numbers in parts]


class TurnCritic:
    """Values of states, and their regression on the targets of turn-level GAE.

    Args:
        recipe: the optimizer; ``critic_lr`` is its rate, else that of the policy.
        source: path or name of the policy, for ``from_pretrained``.
        accelerator: the processes that share the critic.
    """

    def __init__(self, recipe: Recipe, source: str, accelerator: Accelerator) -> None:
        self.recipe = recipe
        self.accelerator = accelerator
        algorithm = recipe.algorithm
        options: Any = {"revision": recipe.model.revision, "dtype": torch.float32}
        body = AutoModel.from_pretrained(source, **options)
        head = torch.nn.Linear(body.config.hidden_size, 1, bias=False)
        torch.nn.init.zeros_(head.weight)
        self.model = torch.nn.ModuleList([body, head]).to(accelerator.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=algorithm.critic_lr or algorithm.lr,
            betas=algorithm.betas,
            weight_decay=algorithm.weight_decay,
        )
        updates = algorithm.epochs * algorithm.minibatches
        self.scheduler = get_scheduler(
            algorithm.schedule_name,
            self.optimizer,
            algorithm.warmup_steps * updates,
            max(recipe.train.steps, 1) * updates,
        )

    def read(self, states: Sequence[States]) -> list[np.ndarray]:
        """Return the values of the states of each episode, float64 [positions]."""
        rows = [row for episode in states for row in episode.rows]
        with torch.no_grad():
            values = [self._values(part).double().cpu().numpy() for part in self._parts(rows)]
        ends = np.cumsum([episode.size for episode in states])
        return np.split(np.concatenate(values), ends[:-1])

    def learn(
        self,
        states: Sequence[States],
        values: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
    ) -> dict[str, float]:
        """Make as many updates as the policy, on minibatches of this rank's episodes.

        Args:
            states: the states of this rank's episodes.
            values: of each episode what `read` returned, from which ``value_clip`` counts.
            targets: of each episode one value per turn with tokens, NaN where a turn is excluded.

        Returns:
            ``loss/value``, half the squared error, mean over the turns of all ranks and over the
            updates; and ``grad_norm/critic``, the largest norm before clipping.
        """
        examples = []
        for state, old, wanted in zip(states, values, targets, strict=True):
            # The state in which a limit cut the episode is read, but has no target.
            padded = np.append(wanted, np.nan) if state.truncated else wanted
            examples.append(Example(state, old, padded))
        updates = [
            self._update([examples[episode] for episode in minibatch])
            for minibatch in self._minibatches(len(examples))
        ]
        norm = float(np.max([norm for _, norm in updates]))  # NaN where one is
        loss = float(np.mean([loss for loss, _ in updates]))
        return {"loss/value": loss, "grad_norm/critic": norm}

    def save(self, folder: Path) -> None:
        """Write the critic beside a checkpoint of the policy."""
        partial = folder / f"{FILE}.partial"
        torch.save({name: part.state_dict() for name, part in self._state().items()}, partial)
        partial.rename(folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        saved = torch.load(folder / FILE, map_location=self.accelerator.device, weights_only=True)
        for name, part in self._state().items():
            part.load_state_dict(saved[name])

    def _state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def _minibatches(self, count: int) -> list[list[int]]:
        """Divide ``count`` episodes into minibatches, in another order in each epoch."""
        algorithm = self.recipe.algorithm
        done = self.scheduler.last_epoch  # saved in checkpoints, so that a run resumes alike
        generator = np.random.default_rng([self.recipe.seed, done])
        return [
            part.tolist()
            for _ in range(algorithm.epochs)
            for part in np.array_split(generator.permutation(count), algorithm.minibatches)
        ]

    def _update(self, examples: Sequence[Example]) -> tuple[float, float]:
        """Make one optimizer step; return the loss and the norm before it."""
        own = sum(int(np.isfinite(example.targets).sum()) for example in examples)
        count = max(self._total(own), 1.0)
        loss = 0.0
        for part in self._parts([row for example in examples for row in example.by_row()]):
            error = self._squared_error(part) / (2 * count)
            error.backward()
            loss += error.item()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = self.accelerator.reduce(parameter.grad, "sum")
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), self.recipe.algorithm.max_grad_norm or float("inf")
        )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        return self._total(loss), float(norm)

    def _squared_error(self, examples: Sequence[Example]) -> torch.Tensor:
        """Return the sum over the positions that have a target, see ``algorithm.value_clip``."""
        targets = self._tensor([example.targets for example in examples])
        known = targets.isfinite()
        targets = targets[known]
        values = self._values([example.states for example in examples])[known]
        old = self._tensor([example.values for example in examples])[known]
        clip = self.recipe.algorithm.value_clip
        near = old + (values - old).clamp(-clip, clip)
        return torch.maximum((values - targets).square(), (near - targets).square()).sum()

    def _tensor(self, arrays: Sequence[np.ndarray]) -> torch.Tensor:
        numbers = torch.from_numpy(np.concatenate(arrays))
        return numbers.to(self.accelerator.device, torch.float32)

    def _parts(self, items: Sequence[_Item]) -> list[Sequence[_Item]]:
        size = self.recipe.batch.micro_batch or len(items)
        return [items[first : first + size] for first in range(0, len(items), size or 1)]

    def _values(self, states: Sequence[States]) -> torch.Tensor:
        """Return the values of all positions of rows, in order; padding is behind them."""
        longest = max(len(state.token_ids) for state in states)
        ids = torch.zeros(len(states), longest or 1, dtype=torch.long)
        for row, state in enumerate(states):
            ids[row, : len(state.token_ids)] = torch.tensor(state.token_ids)
        places = [(row, p) for row, state in enumerate(states) for p in state.positions]
        rows, positions = torch.tensor(places, dtype=torch.long).reshape(-1, 2).unbind(1)
        body, head = self.model
        with self.accelerator.autocast():
            hidden = body(input_ids=ids.to(self.accelerator.device), use_cache=False)[0]
            values: torch.Tensor = head(hidden[rows, positions])[:, 0].float()
        return values

    def _total(self, number: float) -> float:
        """Return the sum of ``number`` over the ranks; a collective call."""
        local = torch.tensor(number, dtype=torch.float64, device=self.accelerator.device)
        return float(self.accelerator.reduce(local, "sum"))


class CriticCheckpoint(TrainerCallback):
    """Saves the critic, where there is one, in each checkpoint.

    Attributes:
        trainer: set by `GemTrainer`.
    """

    trainer: GRPOTrainer

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the critic on the first rank."""
        if self.trainer.critic is not None and state.is_world_process_zero:
            self.trainer.critic.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")
