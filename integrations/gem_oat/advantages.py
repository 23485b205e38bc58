"""gem_core's estimators behind the two hooks in which Oat computes advantages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from oat.algorithms.ppo import PPOLearner
from torch import Tensor

from gem_adapters.estimate import Estimate, estimate
from gem_adapters.token_rows import TokenRows
from gem_core.advantages import identity
from gem_core.advantages.stats import Reduce
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import AlgorithmConfig, Recipe
from gem_oat.rows import Row, SegmentRow

FloatArray = npt.NDArray[np.float64]


def estimate_rows(
    rows: Sequence[Row],
    algorithm: AlgorithmConfig,
    reduce: Reduce = identity,
    *,
    rewards: FloatArray | None = None,
    values: FloatArray | None = None,
) -> Estimate:
    """`gem_adapters.estimate` of the turns in ``rows``, over the turns of all ranks.

    Args:
        rows: the turns of this rank, in any order; episodes and groups are whole.
        algorithm: ``recipe.algorithm``.
        reduce: sum of a float64 array over ranks.
        rewards: float64 [turns], instead of the turns' own rewards (KL in the reward).
        values: float64 [turns], V at the last prompt token.

    Returns:
        Advantages and the critic's targets [turns], 0 for those that are not trained on.

    Raises:
        AdvantageError: two rows are the same turn, or as `compute_advantages`.
    """
    if rewards is None:
        rewards = np.array([row.reward for row in rows], dtype=np.float64)
    columns = TokenRows(  # tables of one column: a row has one turn
        labels=[row.label for row in rows],
        rewards=_column(rewards),
        mask=_column([not row.excluded for row in rows]),
        values=None if values is None else _column(values),
        bootstraps=None if values is None else _bootstraps(rows, values),
    )
    estimated = estimate(columns.batch, algorithm, reduce=reduce)
    targets = estimated.targets
    return Estimate(
        advantages=columns.spread(estimated.advantages)[:, 0],
        targets=None if targets is None else columns.spread(targets)[:, 0],
        metrics=estimated.metrics,
    )


class GemAdvantages(PPOLearner):
    """Oat's learner with the recipe's advantages, one number per turn.

    Oat has one advantage per row, or with a critic one per token. A row has several turns here, so
    Oat is always asked for the latter: without a critic `NoCritic` stands in for the update.

    Attributes:
        recipe: the experiment.
        segments: this learner's rows of the step, in the order of Oat's batch.
        rows: the turns and bootstrap states in them, row by row.
        summary: the estimator's metrics of the step; empty until Oat has called a hook.
        turn_advantages: the advantage of each of ``rows``.
    """

    recipe: Recipe
    segments: list[SegmentRow]
    rows: list[Row]
    turn_advantages: list[float]
    summary: dict[str, float]

    def reduce(self, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Sum over learners, for gem_core's statistics."""
        return self.strategy.all_reduce(torch.tensor(array), op="sum").numpy()

    def get_completion_mask(self, attention_mask: Tensor, prompt_id_lens: list[int]) -> Tensor:
        """True on the tokens that are trained on [rows, tokens].

        Oat's own takes all after the prompt. A row without a trained turn, which weighs nothing,
        has one such token: Oat divides by their number.
        """
        mask = torch.zeros_like(attention_mask, dtype=torch.bool)
        for index, row in enumerate(self.segments):
            for turn in row.trained:
                mask[index, turn.action.start + 1 : turn.action.stop + 1] = True
            if not row.trained:
                mask[index, len(row.token_ids) - 1] = True
        return mask

    def compute_monte_carlo_advantages(self, rewards: Tensor, response_masks: Tensor) -> Tensor:
        """Advantage of each turn [turns]; ``rewards`` [rows, tokens] holds Oat's KL penalty."""
        return torch.from_numpy(self._estimate(rewards).advantages).to(rewards)

    def compute_ppo_advantages(
        self, rewards: Tensor, input_ids: Tensor, att_mask: Tensor, response_masks: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advantages, critic targets and old values [rows, tokens], one number per turn."""
        if isinstance(self.critic, NoCritic):
            advantages = self.compute_monte_carlo_advantages(rewards, response_masks)
            require_installed(self)
            nothing = torch.zeros_like(rewards)
            return self.spread(advantages, rewards), nothing, nothing
        no_actions = torch.zeros_like(response_masks)  # of Oat's GAE only the values are used
        *_, values = super().compute_ppo_advantages(rewards, input_ids, att_mask, no_actions)
        turn_values = [values[index, turn.action.start] for index, turn in self.places()]
        estimated = self._estimate(rewards, torch.stack(turn_values).double().cpu().numpy())
        assert estimated.targets is not None  # the turns have values
        advantages = self.spread(torch.from_numpy(estimated.advantages), rewards)
        return advantages, self.spread(torch.from_numpy(estimated.targets), rewards), values

    def places(self) -> Iterator[tuple[int, Row]]:
        """The turns and bootstrap states, each with the index of its row."""
        for index, row in enumerate(self.segments):
            for turn in row.turns:
                yield index, turn

    def spread(self, per_turn: Tensor, like: Tensor) -> Tensor:
        """One number per turn on the tokens of the trained turns, like ``like`` [rows, tokens]."""
        tokens = torch.zeros_like(like)
        for number, (index, turn) in zip(per_turn.tolist(), self.places(), strict=True):
            if not turn.excluded:
                tokens[index, turn.action] = number
        return tokens

    def turn_rewards(self, rewards: Tensor) -> FloatArray:
        """Reward of each turn [turns]: the environment's in full precision, and what Oat added.

        Args:
            rewards: float32 [rows, tokens], Oat's KL penalty; gem_core's rows end with a reward 0.
        """
        exact = np.array([row.reward for row in self.rows]) * self.args.reward_scale
        # Oat's fused head gives log-probabilities of the reference model that require a gradient.
        penalties = rewards.detach().double().cpu()
        added = [float(penalties[index, turn.action].sum()) for index, turn in self.places()]
        return exact + np.array(added)

    def _estimate(self, rewards: Tensor, values: FloatArray | None = None) -> Estimate:
        estimated = estimate_rows(
            self.rows,
            self.recipe.algorithm,
            self.reduce,
            rewards=self.turn_rewards(rewards),
            values=values,
        )
        self.summary = estimated.metrics
        self.turn_advantages = estimated.advantages.tolist()
        return estimated


class NoCritic:
    """Where a recipe has no critic: its values are 0, and nothing is trained."""

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Values [rows, tokens]."""
        return torch.zeros(input_ids.shape, device=input_ids.device)

    def backward(self, loss: Tensor) -> None:
        """Do nothing with the loss, which is 0."""

    def step(self) -> None:
        """Do nothing: there are no weights."""


@contextmanager
def asked_per_token(learner: Any) -> Iterator[None]:
    """Let Oat ask ``learner`` for the advantages of tokens in the update that follows."""
    if learner.critic is not None:
        yield
        return
    critic_type = learner.args.critic_type
    learner.critic = NoCritic()
    learner.critic_optimizer = None
    learner.critic_scheduler = None
    learner.args.critic_type = "ppo"
    try:
        yield
    finally:
        learner.critic = None
        learner.args.critic_type = critic_type


def require_installed(learner: GemAdvantages) -> None:
    """Raise GemError unless Oat asked gem_core for the advantages of the update under way.

    Oat's own advantages with one sample per prompt are identically 0, without an error.
    """
    if not learner.summary:
        raise GemError(
            "Oat did not ask gem_core for advantages, so nothing would be trained. Remove what "
            "overrides compute_monte_carlo_advantages or compute_ppo_advantages of "
            f"{type(learner).__name__}."
        )


def _column(numbers: Sequence[bool] | FloatArray) -> npt.NDArray[np.float64]:
    """``numbers`` [rows] as a table [rows, 1]."""
    return np.asarray(numbers, dtype=np.float64).reshape(-1, 1)


def _bootstraps(rows: Sequence[Row], values: FloatArray) -> dict[int, float]:
    """V(s_T) by episode: what the critic read at the rows of bootstrap states."""
    return {
        row.episode: float(value)
        for row, value in zip(rows, values, strict=True)
        if row.bootstrap_state
    }
