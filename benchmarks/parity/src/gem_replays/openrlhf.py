"""Frozen episodes through the real package: the first update, or a whole recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_openrlhf.cpu.in_process import InProcess
from gem_openrlhf.metrics import PREFIX
from gem_openrlhf.rows import counts_rows
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, TracedRow, Unit, without_tied
from gem_parity.reference_lora import plain_names
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits

TRAITS = Traits(
    kl_mean="tokens",
    entropy_mean="tokens",
    decayed="matrices",
    value_decayed="matrices",
    kl_limit=10.0,
)
"""OpenRLHF's KL term and entropy are means over tokens always; it excludes norms from weight decay;
it cuts a token's KL estimate off at 10."""

MODES = {"asynchronous": ("trainer.openrlhf.train.async_enable=true",)}
"""Further modes of training, see gem_parity."""


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Replay the first optimizer step on ``episodes``, as one minibatch; see gem_parity."""
    one_update = replace(recipe.algorithm, epochs=1, minibatches=1)
    trainer = InProcess(replace(recipe, algorithm=one_update), model_dir)
    experiences = trainer.experiences(episodes)
    units = _units(trainer)
    rows: list[Row] = []
    for experience in experiences:
        for position in range(len(experience.sequences)):
            if len(rows) < len(units):  # the others only fill up a rank
                rows.append(_row(units[len(rows)][0][0], experience, position))
    status = trainer.train(experiences)
    (gradients,) = trainer.steps
    return Replay(rows, status[PREFIX + "loss/policy"], gradients)


def _units(trainer: InProcess) -> list[list[Unit]]:
    """Return what is trained in each row of the last batch: an episode, or turns of one."""
    episodes = trainer.maker.episodes
    if not counts_rows(trainer.args):
        return [[(number, None)] for number in range(len(episodes))]
    return [
        [(number, turn) for turn, _, _ in segment.spans]
        for number, episode in enumerate(episodes)
        for segment in episode.segments
        if any(segment.loss_mask)
    ]


def _row(number: int, experience: Any, position: int) -> Row:
    """Return row ``position`` of an experience, which is of episode ``number`` of the batch.

    Index i of the per-action tensors is token i + 1; the first token is never trained.
    """
    length = int(experience.attention_mask[position].sum())
    token_ids = experience.sequences[position][:length].tolist()
    loss_mask = [0, *experience.action_mask[position][: length - 1].tolist()]
    advantages = experience.advantages[position][: length - 1].double().numpy()
    return Row(number, token_ids, loss_mask, np.concatenate([[0.0], advantages]))


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train OpenRLHF on a recorded run; see `gem_parity.teacher_forced`.

    Args:
        recipe: the experiment.
        batches: one per training step.
        model_dir: the initial policy.
        on_step: is called before the first step and after every one.
    """
    trainer = InProcess(recipe, model_dir)
    orders = {name: _Order(recipe) for name in ("actor", "critic")}
    _record(trainer.actor.trainer, orders["actor"])
    if trainer.critic is not None:
        _record(trainer.critic.trainer, orders["critic"])
    on_step(0, _trace(trainer, orders))
    for done, batch in enumerate(batches, start=1):
        states = {machine.index: machine.bootstrap_state() for machine in batch.machines}
        experiences = trainer.experiences(batch.episodes, states=states)
        units = _units(trainer)
        places = iter(range(sum(len(experience.sequences) for experience in experiences)))
        for experience in experiences:  # in task order; OpenRLHF's buffer keeps the prompts
            own = [next(places) for _ in experience.sequences]
            experience.prompts = [units[n] if n < len(units) else [] for n in own]
        rows = [_traced(e, place) for e in experiences for place in range(len(e.sequences))]
        rows = rows[: len(units)]
        trainer.train(experiences)
        trace = _trace(trainer, orders)
        trace.rows = rows
        on_step(done, trace)


def _traced(experience: Any, position: int) -> TracedRow:
    """Return row ``position`` of an experience as OpenRLHF's loss will read it."""
    row = _row(0, experience, position)
    logprobs = experience.action_log_probs[position][: len(row.token_ids) - 1].double().numpy()
    return TracedRow(
        row.token_ids,
        [int(kept) for kept in row.loss_mask],
        row.advantages,
        np.concatenate([[0.0], logprobs]),
    )


class _Order:
    """What each minibatch had; ``take`` returns it and forgets."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.passes: list[list[Unit]] = []
        self.ends: list[int] = []
        """Passes that were made when an optimizer step was, where their number varies."""

    def take(self) -> list[list[Unit]]:
        """Return the minibatches since the last call, each of several forward passes."""
        algorithm = self.recipe.algorithm
        each = max(1, len(self.passes) // (algorithm.epochs * algorithm.minibatches))
        ends = self.ends or range(each, len(self.passes) + each, each)
        parts = [self.passes[first:end] for first, end in pairwise([0, *ends])]
        self.passes = []
        self.ends = []
        return [[unit for forward in part for unit in forward] for part in parts if part]


def _record(trainer: Any, order: _Order) -> None:
    """Note what every forward pass of ``trainer`` had."""
    step = trainer.training_step

    def training_step(experience: Any, *args: Any, **kwargs: Any) -> Any:
        order.passes.append([unit for units in experience.prompts for unit in units])
        if counts_rows(trainer.args):
            number = args[-2]  # before what the loss is divided by
            if trainer.replay_buffer.dynamic_optimizer_step[number]:
                order.ends.append(len(order.passes))
        return step(experience, *args, **kwargs)

    trainer.training_step = training_step


def _trace(trainer: InProcess, orders: dict[str, _Order]) -> StepTrace:
    module = trainer.actor.actor.model.module
    weights = plain_names((name, _array(weight)) for name, weight in module.named_parameters())
    trace = StepTrace(without_tied(weights), {}, orders["actor"].take())
    if trainer.critic is not None:
        trace.critic_minibatches = orders["critic"].take()
        named = trainer.critic.critic.module.named_parameters()
        trace.critic = {_critic_name(name): _array(weight) for name, weight in named}
    return trace


def _array(weight: Any) -> np.ndarray:
    array: np.ndarray = weight.detach().double().cpu().numpy().copy()
    return array


def _critic_name(name: str) -> str:
    """Return the name that `gem_parity.recorded.StepTrace` wants."""
    if name.startswith("model."):
        return name.replace("model.", "body.", 1)
    return "head." + name.rpartition(".")[2]
