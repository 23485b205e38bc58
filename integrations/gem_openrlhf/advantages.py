"""Per-turn advantages of gem_core in OpenRLHF's experience maker.

Stock OpenRLHF puts one summed reward on the last token, discounts per token (over the
environment's tokens too) and whitens over tokens. Everything after the forward passes is replaced.
All experiences of a step are in one process, so batch statistics need no reduction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.utils.utils import zero_pad_sequences

from gem_core.adapters.estimate import estimate
from gem_core.adapters.turn_batch import turn_batch
from gem_core.advantages import TurnBatch
from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe
from gem_core.training.tasks import require_step


class GemExperienceMaker(RemoteExperienceMaker):
    """RemoteExperienceMaker with gem_core's estimators; the arguments after ``recipe`` are its own.

    Attributes:
        episodes: episodes of the last batch, in task order.
        summary: the estimator's metrics of the last batch.
    """

    def __init__(self, recipe: Recipe, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recipe = recipe
        self.episodes: list[Episode] = []
        self.summary: dict[str, float] = {}

    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[Experience]:
        """Check and order the samples of one step, then do as OpenRLHF does."""
        samples = sorted(rollout_samples, key=lambda sample: sample.labels[0][0].index)
        self.episodes = [sample.labels[0][0] for sample in samples]
        first = self.episodes[0].index if self.episodes else 0
        require_step(self.recipe, first // self.recipe.batch.episodes + 1, self.episodes)
        require_healthy(self.episodes)
        for sample, episode in zip(samples, self.episodes, strict=True):
            sample.rewards = sample.info["reward"] = torch.tensor([episode.total_reward])
            # OpenRLHF counts from the first to the last action token, observations included.
            sample.response_length = sample.action_mask.sum(dim=-1)
        return super().make_experience_batch(samples)

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        """Write one advantage per turn on that turn's action tokens, zeros elsewhere."""
        found = estimate(self._turns(experiences), self.recipe.algorithm)
        targets = found.advantages if found.targets is None else found.targets
        self.summary = found.metrics
        advantages, returns = iter(found.advantages.tolist()), iter(targets.tolist())
        for e in experiences:
            e.advantages, e.returns = spread_turns(e, advantages), spread_turns(e, returns)
            e.info["return"] = e.rewards.float()
            for name in ("kl", "logprobs_diff"):  # a mean over no tokens, for an excluded episode
                e.info[name] = torch.nan_to_num(e.info[name])
            e.labels, e.kl = list(e.prompts), None  # the episodes stay in this process
        return experiences

    def _turns(self, experiences: list[Experience]) -> TurnBatch:
        """The turns of the batch, with the KL penalty, values and bootstraps the recipe has."""
        episodes = [episode for e in experiences for episode, _ in e.labels]
        batch, algorithm = turn_batch(episodes), self.recipe.algorithm
        if algorithm.kl_coef and algorithm.kl_in == "reward":
            kls = [float(e.kl[r, at].sum()) for e in experiences for r, at, _ in turn_slices(e)]
            batch = replace(batch, rewards=batch.rewards - self.kl_ctl.value * np.array(kls))
        if self.critic_model_group is None:
            return batch
        # The first entry belongs to the turn's last prompt token: the state before the action.
        values = [float(e.values[r, at][0]) for e in experiences for r, at, _ in turn_slices(e)]
        ends = [value for e in experiences for value in self._end_values(e)]
        turns = [len(episode.turns) for episode in episodes]
        return replace(batch, values=np.array(values), bootstrap=np.repeat(ends, turns))

    def _end_values(self, experience: Experience) -> list[float]:
        """V(s_T) of each episode that was cut off, 0 of the others, by OpenRLHF's critic."""
        states = [state for _, state in experience.labels]
        if not any(states):
            return [0.0] * len(states)
        rows = [torch.tensor([[*state, 0, 0]]) for state in states]  # the last token has no value
        sequences = zero_pad_sequences(rows, side="right")
        lengths = torch.tensor([len(state) for state in states])
        last = torch.arange(sequences.shape[1] - 1)[None] == lengths[:, None] - 1
        parts = self.args.critic.num_nodes * self.args.critic.num_gpus_per_node  # one each
        columns = {"sequences": [sequences] * parts, "action_mask": [last.long()] * parts}
        columns["attention_mask"] = [torch.ones_like(sequences)] * parts
        waits = self.args.train.colocate_all
        refs = self._dispatch_forward(self.critic_model_group, waits, **columns)
        values = self._flatten_results(refs, self.args.ds.ring_attn_size)[0]
        return (values * last).sum(dim=-1).tolist()


def turn_slices(experience: Experience) -> Iterator[tuple[int, slice, bool]]:
    """Row, place and "is trained on" of every action in per-action tensors, [B, T-1].

    Their index i belongs to token i + 1.
    """
    for row, (episode, _) in enumerate(experience.labels):
        for _, turn, start, end in episode.spans():
            yield row, slice(start - 1, end - 1), not episode.turns[turn].aborted


def spread_turns(experience: Experience, per_turn: Iterator[float]) -> torch.Tensor:
    """Put the next numbers of ``per_turn`` on the turns of ``experience``; float32 [B, T-1].

    Raises:
        GemError: OpenRLHF's action mask is not that of the episodes.
    """
    mask = experience.action_mask
    out, trained = torch.zeros_like(mask, dtype=torch.float32), torch.zeros_like(mask)
    for row, where, kept in turn_slices(experience):
        trained[row, where] = kept
        out[row, where] = next(per_turn) * kept
    count = sum(sum(s.loss_mask) for episode, _ in experience.labels for s in episode.segments)
    if not torch.equal(trained, mask) or int(mask.sum()) != count:
        raise GemError(
            "OpenRLHF's action mask is not that of the episodes: sequences were truncated at "
            "data.max_len (limits.max_context_tokens), or turns are masked in part."
        )
    return out


def require_installed(trainer: Any, recipe: Recipe) -> None:
    """Raise GemError unless ``trainer``, inside its Ray actor, uses gem_core's estimators."""
    maker = trainer.experience_maker
    if type(maker) is not GemExperienceMaker or maker.recipe != recipe:
        raise GemError(
            f"OpenRLHF's trainer has the experience maker {type(maker).__name__}, which is not "
            f"gem_core's {recipe.algorithm.estimator!r} of this recipe. Nothing was trained."
        )
