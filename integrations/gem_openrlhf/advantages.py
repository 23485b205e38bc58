"""Per-turn advantages of gem_core in OpenRLHF's experience maker.

Stock OpenRLHF puts one summed reward on the last token, discounts per token (over the
environment's tokens too) and whitens over tokens. Everything after the forward passes is replaced.
All experiences of a step are in one process, so batch statistics need no reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.utils.utils import zero_pad_sequences

from gem_adapters.estimate import estimate
from gem_adapters.turn_batch import turn_batch, with_values
from gem_core.advantages import TurnBatch
from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import require_step
from gem_openrlhf.dynamic import divide


class GemExperienceMaker(RemoteExperienceMaker):
    """RemoteExperienceMaker with gem_core's estimators; the arguments after ``recipe`` are its own.

    The label of a sample is its episode and the state in which a limit cut it, see
    `gem_openrlhf.rollout.to_native`.

    Attributes:
        episodes: episodes of the last batch, in task order.
        metrics: the estimator's metrics of the last batch.
    """

    def __init__(self, recipe: Recipe, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recipe = recipe
        self.episodes: list[Episode] = []
        self.metrics: dict[str, float] = {}

    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[Experience]:
        """Check and order the samples of one step, then continue as OpenRLHF does."""
        samples = sorted(rollout_samples, key=lambda sample: sample.labels[0][0].index)
        self.episodes = [sample.labels[0][0] for sample in samples]
        first_index = self.episodes[0].index if self.episodes else 0
        step = first_index // self.recipe.batch.episodes + 1
        require_step(self.recipe, step, self.episodes)
        require_healthy(self.episodes)
        for sample, episode in zip(samples, self.episodes, strict=True):
            sample.rewards = torch.tensor([episode.total_reward])
            sample.info["reward"] = sample.rewards
            # OpenRLHF counts from the first to the last action token, observations included.
            sample.response_length = sample.action_mask.sum(dim=-1)
        return super().make_experience_batch(samples)

    def split_rollout_samples(self, rollout_samples: list[Experience]) -> list[Experience]:
        """Put the samples into forward passes; by tokens where the recipe counts them."""
        most = self.recipe.batch.max_tokens_per_device
        if most is None:
            experiences: list[Experience] = super().split_rollout_samples(rollout_samples)
            return experiences
        for place, sample in enumerate(rollout_samples):
            sample.index = [place]
        lengths = [int(sample.total_length.item()) for sample in rollout_samples]
        actor = self.args.actor
        parts = divide(lengths, most, actor.num_nodes * actor.num_gpus_per_node)
        padding = self.tokenizer.pad_token_id
        return [
            Experience.concat_experiences([rollout_samples[place] for place in part], padding)
            for part in parts
        ]

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        """Write one advantage per turn on that turn's action tokens, zeros elsewhere."""
        result = estimate(self._turns(experiences), self.recipe.algorithm)
        targets = result.advantages if result.targets is None else result.targets
        self.metrics = result.metrics
        advantages = iter(result.advantages.tolist())
        returns = iter(targets.tolist())
        for experience in experiences:
            experience.advantages = spread_turns(experience, advantages)
            experience.returns = where_read(experience, spread_turns(experience, returns))
            experience.info["return"] = experience.rewards.float()
            for name in ("kl", "logprobs_diff"):  # a mean over no tokens, for an excluded episode
                experience.info[name] = torch.nan_to_num(experience.info[name])
            experience.labels = list(experience.prompts)  # the episodes stay in this process
            experience.kl = None
        return experiences

    def _turns(self, experiences: Sequence[Experience]) -> TurnBatch:
        """Return the turns of the batch, with the recipe's KL penalty, values and bootstraps."""
        algorithm = self.recipe.algorithm
        episodes = [episode for experience in experiences for episode, _ in experience.labels]
        turns = turn_batch(episodes)
        if algorithm.kl_coef and algorithm.kl_in == "reward":
            penalties = self.kl_ctl.value * np.array(_kl_per_turn(experiences))
            turns = replace(turns, rewards=turns.rewards - penalties)
        if self.critic_model_group is None:
            return turns
        values = [row for experience in experiences for row in self._values(experience)]
        return with_values(turns, episodes, values)

    def _values(self, experience: Experience) -> list[np.ndarray]:
        """Return per episode V before each turn, and V of the state in which a limit cut it."""
        rows: list[list[float]] = [[] for _ in experience.labels]
        for row, tokens, _ in turn_slices(experience):
            # The first entry belongs to the turn's last prompt token: the state before the action.
            rows[row].append(float(experience.values[row, tokens][0]))
        for row, value in self._bootstrap_values(experience).items():
            rows[row].append(value)
        return [np.array(values) for values in rows]

    def _bootstrap_values(self, experience: Experience) -> dict[int, float]:
        """Return by row V of the state in which a limit cut an episode, from OpenRLHF's critic."""
        states = [state for _, state in experience.labels]
        if not any(states):
            return {}
        rows = [torch.tensor([[*state, 0, 0]]) for state in states]  # the last token has no value
        sequences = zero_pad_sequences(rows, side="right")
        lengths = torch.tensor([len(state) for state in states])
        positions = torch.arange(sequences.shape[1] - 1)
        last = positions[None] == lengths[:, None] - 1
        ranks = self.args.critic.num_nodes * self.args.critic.num_gpus_per_node  # a copy for each
        references = self._dispatch_forward(
            self.critic_model_group,
            self.args.train.colocate_all,
            sequences=[sequences] * ranks,
            action_mask=[last.long()] * ranks,
            attention_mask=[torch.ones_like(sequences)] * ranks,
        )
        values = self._flatten_results(references, self.args.ds.ring_attn_size)[0]
        ends = (values * last).sum(dim=-1).tolist()
        return {row: ends[row] for row, state in enumerate(states) if state}


def turn_slices(experience: Experience) -> Iterator[tuple[int, slice, bool]]:
    """Yield row, place and "is trained on" of every action in per-action tensors, [B, T-1].

    Their index i belongs to token i + 1.
    """
    for row, (episode, _) in enumerate(experience.labels):
        for _, turn, start, end in episode.spans():
            yield row, slice(start - 1, end - 1), not episode.turns[turn].aborted


def _kl_per_turn(experiences: Sequence[Experience]) -> list[float]:
    """Return the KL against the initial model, summed over the tokens of each turn."""
    return [
        float(experience.kl[row, tokens].sum())
        for experience in experiences
        for row, tokens, _ in turn_slices(experience)
    ]


def spread_turns(experience: Experience, per_turn: Iterator[float]) -> torch.Tensor:
    """Put the next numbers of ``per_turn`` on the turns of ``experience``; float32 [B, T-1].

    Raises:
        GemError: OpenRLHF's action mask is not that of the episodes.
    """
    mask = experience.action_mask
    spread = torch.zeros_like(mask, dtype=torch.float32)
    trained = torch.zeros_like(mask)
    for row, tokens, kept in turn_slices(experience):
        trained[row, tokens] = kept
        spread[row, tokens] = next(per_turn) * kept
    segments = (segment for episode, _ in experience.labels for segment in episode.segments)
    count = sum(sum(segment.loss_mask) for segment in segments)
    if not torch.equal(trained, mask) or int(mask.sum()) != count:
        raise GemError(
            "OpenRLHF's action mask is not that of the episodes: sequences were truncated at "
            "data.max_len (raise limits.max_context_tokens), or turns are masked in part."
        )
    return spread


def where_read(experience: Experience, targets: torch.Tensor) -> torch.Tensor:
    """Return the targets where the critic is read, at each turn's last prompt token; else NaN.

    The place of `turn_slices` that belongs to it is the first of the turn.
    """
    read = torch.full_like(targets, torch.nan)
    for row, tokens, _ in turn_slices(experience):
        read[row, tokens.start] = targets[row, tokens.start]
    return read


def only_where_read(experience: Experience) -> Experience:
    """Return a critic's view of an experience: only the targets that `where_read` left."""
    returns = experience.returns
    mask = experience.action_mask * ~returns.isnan()
    return replace(experience, action_mask=mask, returns=returns.nan_to_num())


def require_installed(trainer: Any, recipe: Recipe) -> None:
    """Raise GemError unless ``trainer``, inside its Ray actor, uses gem_core's estimators."""
    maker = trainer.experience_maker
    if type(maker) is not GemExperienceMaker or maker.recipe != recipe:
        raise GemError(
            f"OpenRLHF's trainer has the experience maker {type(maker).__name__}, which is not "
            f"gem_core's {recipe.algorithm.estimator!r} of this recipe. Nothing was trained. Start "
            "OpenRLHF with gem_openrlhf.launch.run or inside gem_openrlhf.actors.installed()."
        )
