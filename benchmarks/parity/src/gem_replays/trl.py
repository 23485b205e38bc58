"""Replay frozen episodes in TRL: its real sampler, scoring, loss, backward pass and optimizer.

Only generation is left out (the episodes were played before). `replay` makes one update without
clipping, so that the gradient is the one before it; `replay_run` trains a whole recorded run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast, TrainerCallback

from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, TracedRow, Unit
from gem_parity.reference_lora import plain_names
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits
from gem_trl.batching import updates_per_step
from gem_trl.trainer import GemTrainer

TRAITS = Traits(
    divisor="batch share",
    entropy_mean="tokens",
    decayed="matrices",
)
"""TRL's loss divides by the batch's tokens over the number of minibatches; transformers' trainer
excludes norms from weight decay."""


class _Replayer(GemTrainer):
    """Takes episodes instead of playing them; keeps the scored batch."""

    frozen: Sequence[Episode]
    scored: dict[str, Any]

    def play(self, tasks: Sequence[Any]) -> list[Episode]:
        self.bootstrap_states = [[] for _ in tasks]
        return [self.frozen[task.index] for task in tasks]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.scored = super()._generate_and_score_completions(inputs)
        return self.scored


class _Capture(TrainerCallback):
    """Keeps the gradients of the first update and its loss."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.gradients: dict[str, np.ndarray] = {}
        self.loss = float("nan")

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Copy the gradients."""
        self.gradients = {
            name: parameter.grad.detach().double().numpy().copy()
            for name, parameter in self.trainer.model.named_parameters()
            if parameter.grad is not None
        }

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Keep the loss."""
        self.loss = logs.get("loss", self.loss)


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Train one step of TRL on ``episodes``; see `gem_parity.replay.Replay`.

    Args:
        recipe: the experiment; its batch must have as many episodes.
        episodes: frozen, task ``0 .. len - 1``.
        model_dir: a causal LM; without a tokenizer beside it ids 0 and 1 pad and stop.
    """
    if torch.cuda.is_available():
        raise RuntimeError("The replay is a CPU test: hide the GPU with CUDA_VISIBLE_DEVICES=''.")
    recipe = replace(
        recipe,
        train=replace(recipe.train, steps=1),
        algorithm=replace(recipe.algorithm, max_grad_norm=0.0, epochs=1, minibatches=1),
    )
    capture = _Capture()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(model_dir)
        trainer = _Replayer.from_recipe(recipe, model_dir, tokenizer, folder, [capture])
        trainer.frozen = episodes
        trainer.train()
    return Replay(_rows(trainer), capture.loss, capture.gradients)


def _rows(trainer: _Replayer) -> list[Row]:
    """Return the sequences as TRL's loss saw them, without padding and `StepBatch.row_scale`.

    Samples after the rows have nothing trained on them.
    """
    assert trainer.step_batch is not None, "a step was trained"
    scored = trainer.scored
    scale = trainer.step_batch.row_scale
    rows = []
    for number, placed in enumerate(trainer.step_batch.rows):
        prompt = scored["prompt_ids"][number][scored["prompt_mask"][number] == 1]
        kept = scored["completion_mask"][number] == 1
        completion = scored["completion_ids"][number][kept]
        mask = scored["tool_mask"][number][kept]
        advantages = scored["advantages"][number][kept] / scale
        row = Row(
            episode=placed.episode,
            token_ids=[*prompt.tolist(), *completion.tolist()],
            loss_mask=[0] * len(prompt) + mask.tolist(),
            advantages=torch.cat([torch.zeros(len(prompt)), advantages]).double().numpy(),
        )
        rows.append(row)
    return rows


def _tokenizer(model_dir: str) -> PreTrainedTokenizerFast:
    """Return the model's tokenizer, else one whose tokens are named by their ids."""
    if (Path(model_dir) / "tokenizer_config.json").exists():
        return AutoTokenizer.from_pretrained(model_dir)
    size = AutoConfig.from_pretrained(model_dir).vocab_size
    words = {"<pad>": 0, "<stop>": 1, **{f"<{i}>": i for i in range(2, size)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<stop>", padding_side="left"
    )


class _RunReplayer(_Replayer):
    """Plays the recorded batch of each step, and keeps what the step trained in which order."""

    batches: Sequence[FrozenBatch]
    minibatches: dict[int, list[Unit]]
    critic_minibatches: list[list[Unit]]

    def play(self, tasks: Sequence[Any]) -> list[Episode]:
        """Return the recorded episodes, and keep their bootstrap states."""
        size = self.recipe.batch.episodes
        batch = self.batches[tasks[0].index // size]
        places = [task.index % size for task in tasks]
        self.bootstrap_states = [batch.machines[place].bootstrap_state() for place in places]
        return [batch.episodes[place] for place in places]

    def traced(self) -> list[TracedRow]:
        """Return what the step trained on."""
        old = self.scored.get("old_per_token_logps")
        return [self._traced(place, row, old) for place, row in enumerate(_rows(self))]

    def _traced(self, place: int, row: Row, old: torch.Tensor | None) -> TracedRow:
        """Return the row at ``place`` with the old policy's log-probabilities."""
        logprobs = None
        if old is not None:
            kept = self.scored["completion_mask"][place] == 1
            numbers = old[place][kept].double().numpy()
            logprobs = np.concatenate([np.zeros(len(row.token_ids) - len(numbers)), numbers])
        return TracedRow(row.token_ids, row.loss_mask, row.advantages, logprobs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        # TRL shuffles every tensor of the batch alike, so that this says which row is where.
        output["gem_row"] = torch.arange(len(output["prompt_ids"]))
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        units = [unit for row in inputs["gem_row"] for unit in self._units(int(row))]
        self.minibatches.setdefault(self.state.global_step, []).extend(units)
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        return loss

    def _units(self, place: int) -> list[Unit]:
        """Return what is trained in the row at ``place``: a whole episode, or turns of one."""
        assert self.step_batch is not None, "the step is under way"
        if not self.several_rows:
            return [(place, None)]
        rows = self.step_batch.rows[place : place + 1]  # none where the row only fills up a pass
        spans = [(row.episode, row.segment.spans) for row in rows if row.segment]
        return [(episode, turn) for episode, own in spans for turn, _, _ in own]


class _Report(TrainerCallback):
    """Calls ``on_step`` before the first training step and after every one."""

    def __init__(self, on_step: OnStep) -> None:
        self.trainer: Any = None
        self.on_step = on_step

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Report the initial weights."""
        self.trainer.minibatches = {}
        self.trainer.critic_minibatches = []
        if self.trainer.critic is not None:
            _record(self.trainer)
        self.on_step(0, self._trace([]))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report after the last optimizer step of a training step."""
        updates = updates_per_step(self.trainer.recipe)
        if state.global_step % updates == 0:
            minibatches = list(self.trainer.minibatches.values())
            self.trainer.minibatches = {}
            self.on_step(state.global_step // updates, self._trace(minibatches))

    def _trace(self, minibatches: list[list[Unit]]) -> StepTrace:
        trainer = self.trainer
        named = trainer.accelerator.unwrap_model(trainer.model).named_parameters()
        weights = plain_names((name, _array(weight)) for name, weight in named)
        trace = StepTrace(weights, {}, minibatches)
        trace.rows = trainer.traced() if minibatches else []
        if trainer.critic is not None:
            body, head = trainer.critic.model
            trace.critic = {f"body.{n}": _array(weight) for n, weight in body.named_parameters()}
            trace.critic |= {f"head.{n}": _array(weight) for n, weight in head.named_parameters()}
            trace.critic_minibatches = trainer.critic_minibatches
            trainer.critic_minibatches = []
        return trace


def _record(trainer: _RunReplayer) -> None:
    """Note the episodes of the critic's minibatches."""
    critic: Any = trainer.critic
    divide = critic._minibatches

    def recorded(count: int) -> list[list[int]]:
        minibatches: list[list[int]] = divide(count)
        trainer.critic_minibatches += [[(n, None) for n in part] for part in minibatches]
        return minibatches

    critic._minibatches = recorded


def _array(weight: torch.Tensor) -> np.ndarray:
    array: np.ndarray = weight.detach().double().cpu().numpy().copy()
    return array


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train TRL on a recorded run; see `gem_parity.teacher_forced`.

    Args:
        recipe: the experiment.
        batches: one per training step.
        model_dir: the initial policy.
        on_step: is called before the first step and after every one.
    """
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(model_dir)
        report = _Report(on_step)
        trainer = _RunReplayer.from_recipe(recipe, model_dir, tokenizer, folder, [report])
        trainer.batches = batches
        trainer.train()
