"""Per-turn advantages of gem_core in OpenRLHF's experience maker.

Stock OpenRLHF puts one summed reward on the last token, discounts per token (over the
environment's tokens too) and whitens over tokens. Everything after the forward passes is replaced.
All experiences of a step are in one process, so batch statistics need no reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.utils.utils import zero_pad_sequences

from gem_adapters.estimate import estimate
from gem_adapters.support import require_support
from gem_adapters.turn_batch import turn_batch, turns_with_tokens, with_values
from gem_core.advantages import TurnBatch
from gem_core.episodes.data import Episode, Support
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import require_step
from gem_openrlhf.dynamic import divide
from gem_openrlhf.rollout import NO_ROW
from gem_openrlhf.rows import counts_rows, pass_rows, row_samples
from gem_openrlhf.support import row_supports

Turn = tuple[int, int]
"""Task of an episode, and number of a turn in it."""


class GemExperienceMaker(RemoteExperienceMaker):
    """RemoteExperienceMaker with gem_core's estimators; the arguments after ``recipe`` are its own.

    The label of a sample is its episode, the state in which a limit cut it, and the number of its
    row, see `gem_openrlhf.rollout.to_native`.

    Attributes:
        episodes: episodes of the last batch, in task order.
        metrics: the estimator's metrics of the last batch.
    """

    def __init__(self, recipe: Recipe, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recipe = recipe
        self.episodes: list[Episode] = []
        self.metrics: dict[str, float] = {}
        self._over_drawn = recipe.sampling.support == "drawn"
        self._supports: list[list[Support]] = []

    def make_experience_batch(self, rollout_samples: list[Experience]) -> list[Experience]:
        """Check and order the samples of one step, then continue as OpenRLHF does."""
        samples = sorted(rollout_samples, key=lambda sample: sample.labels[0][0].index)
        self.episodes = [sample.labels[0][0] for sample in samples]
        first_index = self.episodes[0].index if self.episodes else 0
        step = first_index // self.recipe.batch.episodes + 1
        require_step(self.recipe, step, self.episodes)
        require_healthy(self.episodes)
        if self._over_drawn:
            require_support(self.episodes)
        if counts_rows(self.args):
            samples = row_samples(samples, self.args)
        else:
            require_one_row(self.episodes)
        for sample in samples:
            episode = sample.labels[0][0]
            sample.rewards = torch.tensor([episode.total_reward])
            sample.info["reward"] = sample.rewards
            # OpenRLHF counts from the first to the last action token, observations included.
            sample.response_length = sample.action_mask.sum(dim=-1)
        return super().make_experience_batch(samples)

    def make_experience(self, samples_list: list[Experience]) -> list[Experience]:
        """Score the samples; the policy and the initial model also get their supports."""
        if self._over_drawn:
            self._supports = [row_supports(sample) for sample in samples_list]
        experiences: list[Experience] = super().make_experience(samples_list)
        return experiences

    def _dispatch_forward(self, group: Any, sync_condition: Any, **columns: Any) -> Any:
        if self._over_drawn and group in (self.actor_model_group, self.initial_model_group):
            columns["supports"] = self._supports
        return super()._dispatch_forward(group, sync_condition, **columns)

    def split_rollout_samples(self, rollout_samples: list[Experience]) -> list[Experience]:
        """Put the samples into forward passes; by tokens where the recipe counts them."""
        if counts_rows(self.args):
            return self._scoring_passes(rollout_samples)
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

    def _scoring_passes(self, rows: list[Experience]) -> list[Experience]:
        """Put rows into forward passes, on every rank as many; see `row_samples`."""
        size = pass_rows(len(rows), self.args)
        padding = self.tokenizer.pad_token_id
        for place, row in enumerate(rows):
            row.index = [place]
        return [
            Experience.concat_experiences(rows[first : first + size], padding)
            for first in range(0, len(rows), size)
        ]

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        """Write one advantage per turn on that turn's action tokens, zeros elsewhere."""
        episodes = self._order(experiences)
        result = estimate(self._turns(experiences, episodes), self.recipe.algorithm)
        targets = result.advantages if result.targets is None else result.targets
        self.metrics = result.metrics
        turns = [(e.index, number) for e in episodes for number in range(len(e.turns))]
        advantages = dict(zip(turns, result.advantages.tolist(), strict=True))
        returns = dict(zip(turns, targets.tolist(), strict=True))
        for experience in experiences:
            experience.advantages = spread_turns(experience, advantages)
            experience.returns = where_read(experience, spread_turns(experience, returns))
            experience.info["return"] = experience.rewards.float()
            for name in ("kl", "logprobs_diff"):  # a mean over no tokens, for an excluded episode
                experience.info[name] = torch.nan_to_num(experience.info[name])
            # The episodes stay in this process.
            supports = row_supports(experience) if self._over_drawn else None
            experience.labels = supports or list(experience.prompts)
            experience.kl = None
        return experiences

    def _order(self, experiences: Sequence[Experience]) -> list[Episode]:
        """Return the episodes as the estimator gets them."""
        if counts_rows(self.args):
            return self.episodes
        return [episode for experience in experiences for episode, *_ in experience.labels]

    def _turns(self, experiences: Sequence[Experience], episodes: Sequence[Episode]) -> TurnBatch:
        """Return the turns of the batch, with the recipe's KL penalty, values and bootstraps."""
        algorithm = self.recipe.algorithm
        turns = turn_batch(episodes)
        if algorithm.kl_coef and algorithm.kl_in == "reward":
            summed = _kl_per_turn(experiences)
            per_turn = [
                summed.get((episode.index, number), 0.0)
                for episode in episodes
                for number in range(len(episode.turns))
            ]
            turns = replace(turns, rewards=turns.rewards - self.kl_ctl.value * np.array(per_turn))
        if self.critic_model_group is None:
            return turns
        return with_values(turns, episodes, self._values(experiences, episodes))

    def _values(
        self, experiences: Sequence[Experience], episodes: Sequence[Episode]
    ) -> list[np.ndarray]:
        """Return per episode V before each turn, and V of the state in which a limit cut it."""
        read: dict[Turn, float] = {}
        final: dict[int, float] = {}
        for experience in experiences:
            for place in turn_places(experience):
                # The first entry belongs to the turn's last prompt token: the state before it.
                read[place.turn] = float(experience.values[place.row, place.tokens][0])
            for row, value in self._bootstrap_values(experience).items():
                final[experience.labels[row][0].index] = value
        values = []
        for episode in episodes:
            # A turn that is not trained may stand in no row; its value is in no estimate.
            turns = [read.get((episode.index, n), 0.0) for n in turns_with_tokens(episode)]
            last = [final[episode.index]] if episode.index in final else []
            values.append(np.array(turns + last))
        return values

    def _bootstrap_values(self, experience: Experience) -> dict[int, float]:
        """Return by row V of the state in which a limit cut an episode, from OpenRLHF's critic."""
        states = [state for _, state, _ in experience.labels]
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


class TurnPlace(NamedTuple):
    """Where an action is in per-action tensors, [B, T-1]; their index i belongs to token i + 1.

    Attributes:
        row: of the experience.
        tokens: of the row.
        turn: which one it is.
        trained: whether it is trained on.
    """

    row: int
    tokens: slice
    turn: Turn
    trained: bool


def turn_places(experience: Experience) -> Iterator[TurnPlace]:
    """Yield the place of every action in the rows of an experience."""
    for row, (episode, _, number) in enumerate(experience.labels):
        for segment, turn, start, end in episode.spans():
            if segment == number:
                trained = not episode.turns[turn].aborted
                yield TurnPlace(row, slice(start - 1, end - 1), (episode.index, turn), trained)


def require_one_row(episodes: Sequence[Episode]) -> None:
    """Raise GemError where an episode has several rows, of which only the first would train."""
    if any(len(episode.segments) > 1 for episode in episodes):
        raise GemError(
            "An episode has several token sequences, and OpenRLHF was started for one: start it "
            "with `gem_openrlhf.launch.run`, which looks at the recipe and its chat template."
        )


def _kl_per_turn(experiences: Sequence[Experience]) -> dict[Turn, float]:
    """Return the KL against the initial model, summed over the tokens of each turn."""
    return {
        place.turn: float(experience.kl[place.row, place.tokens].sum())
        for experience in experiences
        for place in turn_places(experience)
    }


def spread_turns(experience: Experience, per_turn: Mapping[Turn, float]) -> torch.Tensor:
    """Put the numbers of turns on the turns of ``experience``; float32 [B, T-1].

    Raises:
        GemError: OpenRLHF's action mask is not that of the episodes.
    """
    mask = experience.action_mask
    spread = torch.zeros_like(mask, dtype=torch.float32)
    trained = torch.zeros_like(mask)
    for place in turn_places(experience):
        trained[place.row, place.tokens] = place.trained
        spread[place.row, place.tokens] = per_turn[place.turn] * place.trained
    rows = ((episode, number) for episode, _, number in experience.labels if number != NO_ROW)
    segments = (s for episode, number in rows for s in episode.segments[number : number + 1])
    count = sum(sum(segment.loss_mask) for segment in segments)
    if not torch.equal(trained, mask) or int(mask.sum()) != count:
        raise GemError(
            "OpenRLHF's action mask is not that of the episodes: sequences were truncated at "
            "data.max_len (raise limits.max_context_tokens), or turns are masked in part."
        )
    return spread


def where_read(experience: Experience, targets: torch.Tensor) -> torch.Tensor:
    """Return the targets where the critic is read, at each turn's last prompt token; else NaN.

    The place of `turn_places` that belongs to it is the first of the turn.
    """
    read = torch.full_like(targets, torch.nan)
    for place in turn_places(experience):
        first = place.tokens.start
        read[place.row, first] = targets[place.row, first]
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
