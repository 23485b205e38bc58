"""Frozen episodes through the real package, for the parity tests: an update, or a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gem_adapters.estimate import needs_critic
from gem_core.episodes.data import Episode
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_oat.cpu import install
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import OnStep, StepTrace, TracedRow, Unit
from gem_parity.reference_lora import plain_names
from gem_parity.replay import Replay, Row
from gem_parity.traits import Traits

TRAITS = Traits(decayed="matrices", value_decayed="matrices")
"""Oat excludes norms from weight decay."""


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Rows, loss and gradient of the first update that Oat makes on ``episodes``.

    A row of Oat's is a segment, as the reference's.
    """
    install()
    from gem_oat.cpu.in_process import make

    with TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run", recipe, "oat")
        learner: Any = make(_arguments(recipe, run, model_dir), _capturing_learner(), alone=True)
        learner._init(learner.args, learner.actors)
        learner.steps = 0
        learner.gradient_update_st = 0.0
        _feed(learner, episodes)
        learner.learn(1)
    return Replay(learner.trained_rows, learner.first_loss, learner.gradients)


def replay_run(
    recipe: Recipe, batches: Sequence[FrozenBatch], model_dir: str, on_step: OnStep
) -> None:
    """Train Oat on a recorded run; see `gem_parity.teacher_forced`.

    Args:
        recipe: the experiment.
        batches: one per training step.
        model_dir: the initial policy.
        on_step: is called before the first step and after every one.
    """
    install()
    from gem_oat.cpu.in_process import make

    with TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run", recipe, "oat")
        learner: Any = make(_arguments(recipe, run, model_dir), _recording_learner(), alone=True)
        learner._init(learner.args, learner.actors)
        learner.steps = 0
        learner.gradient_update_st = 0.0
        on_step(0, learner.trace())
        for done, batch in enumerate(batches, start=1):
            learner.first_task = batch.episodes[0].index
            learner.process_feedback_data(_rows_of(recipe, batch))
            learner.learn(done)
            on_step(done, learner.trace())


def _rows_of(recipe: Recipe, batch: FrozenBatch) -> list[Any]:
    """Return what Oat's actor would give the learner for a step."""
    from gem_oat.rollout import to_native

    env_ids = sorted({episode.env_id for episode in batch.episodes})
    critic = needs_critic(recipe)
    data = []
    for machine in batch.machines:
        episode = machine.episode
        state = machine.bootstrap_state() if critic else []
        data += to_native(episode, episode.index, env_ids.index(episode.env_id), state)
    data[0].episodes = [machine.episode for machine in batch.machines]
    return data


def _recording_learner() -> type:
    """The learner of the CPU backend, which also says what it trained in which order."""
    from gem_oat.cpu.in_process import InProcessLearner

    class RecordingLearner(InProcessLearner):
        first_task = 0
        minibatches: list[list[Unit]] = []  # noqa: RUF012
        rows_of_step: list[TracedRow] = []  # noqa: RUF012

        def get_batch_logps(self, *args: Any, **kwargs: Any) -> Any:
            logps, entropy = super().get_batch_logps(*args, **kwargs)
            if kwargs["model"] is self.model and not kwargs["compute_entropy"]:
                self.old += list(logps.detach())
            return logps, entropy

        def compute_ppo_advantages(self, *args: Any) -> Any:
            self.given = args[1:]  # token ids, attention mask, response mask
            self.computed = super().compute_ppo_advantages(*args)
            return self.computed

        def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
            self.old: list[Any] = []
            generator = np.random.RandomState()
            generator.set_state(np.random.get_state())  # Oat draws its permutations from it
            infos: dict[str, Any] = super().learning_step(trajectory)
            self.minibatches = []
            self.rows_of_step = _traced(self, trajectory["loss_masks"])
            for _ in range(self.recipe.algorithm.epochs):
                order = generator.permutation(len(self.segments))
                for part in np.split(order, self.recipe.algorithm.minibatches):
                    turns = [turn for number in part for turn in self.segments[number].trained]
                    units = [(turn.episode - self.first_task, turn.turn) for turn in turns]
                    self.minibatches.append(units)
            return infos

        def trace(self) -> StepTrace:
            """Return the weights, and what the last step trained in which order."""
            named = self.model.model.module.named_parameters()
            weights = plain_names((name, _array(weight)) for name, weight in named)
            trace = StepTrace(weights, {}, self.minibatches)
            trace.rows = self.rows_of_step
            if self.critic is not None:
                trace.critic_minibatches = self.minibatches
                named = self.critic.module.named_parameters()
                trace.critic = {_critic_name(name): _array(weight) for name, weight in named}
            return trace

    return RecordingLearner


def _traced(learner: Any, kept: Sequence[Any]) -> list[TracedRow]:
    """Return the rows of the step, without those that only fill it up, whose ``kept`` is 0."""
    ids, attended, trained = learner.given
    advantages = learner.computed[0]
    return [
        TracedRow(
            ids[row, :length].tolist(),
            [0, *trained[row, : length - 1].int().tolist()],
            np.array([0.0, *advantages[row, : length - 1].tolist()]),
            np.array([0.0, *learner.old[row][: length - 1].tolist()]),
        )
        for row, length in enumerate(attended.sum(1).long().tolist())
        if kept[row]
    ]


def _array(weight: Any) -> np.ndarray:
    array: np.ndarray = weight.detach().double().cpu().numpy().copy()
    return array


def _critic_name(name: str) -> str:
    """Return the name that `gem_parity.recorded.StepTrace` wants."""
    inside = name.removeprefix("model.")  # Oat wraps the model
    if inside.startswith("model."):
        return inside.replace("model.", "body.", 1)
    return "head." + inside.rpartition(".")[2]


def _arguments(recipe: Recipe, run: RunDir, model_dir: str) -> Any:
    from gem_oat import config
    from gem_oat.learner import GemRun

    args = config.arguments(recipe)
    args.pretrain = model_dir
    args.ref_pretrain = model_dir
    args.critic_pretrain = model_dir
    args.save_path = str(run.path / "oat")
    args.gem = GemRun(recipe, run)
    args.tokenizer = _tokenizer(run.path / "tokenizer")
    return args


def _tokenizer(path: Path) -> str:
    """Oat wants a tokenizer beside the model; nothing is tokenised here but padding."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    fast = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
    fast.save_pretrained(path)
    return str(path)


def _feed(learner: Any, episodes: Sequence[Episode]) -> None:
    """Give the learner what its actor would."""
    from gem_oat.rollout import to_native

    env_ids = sorted({episode.env_id for episode in episodes})
    data = []
    for number, episode in enumerate(episodes):
        data += to_native(episode, number, env_ids.index(episode.env_id))
    data[0].episodes = list(episodes)
    learner.process_feedback_data(data)


def _capturing_learner() -> type:
    """The learner of the CPU backend, keeping the first gradient and the rows."""
    from deepspeed.utils import safe_get_full_grad

    from gem_oat.cpu.in_process import InProcessLearner

    class CapturingLearner(InProcessLearner):
        first_loss: float
        gradients: dict[str, np.ndarray]
        trained_rows: list[Row]

        def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
            self.trajectory = trajectory
            self.gradients = {}
            step = self.strategy.optimizer_step

            def capture(optimizer: Any, model: Any, scheduler: Any, **kwargs: Any) -> None:
                engine = self.model.model
                is_update = model is self.model and engine.is_gradient_accumulation_boundary()
                if is_update and not self.gradients:
                    self.first_loss = self.loss.sums["loss/policy"]
                    for name, parameter in engine.module.named_parameters():
                        gradient = safe_get_full_grad(parameter)
                        self.gradients[name] = gradient.double().numpy().copy()
                step(optimizer, model, scheduler, **kwargs)

            self.strategy.optimizer_step = capture
            try:
                return super().learning_step(trajectory)
            finally:
                self.strategy.optimizer_step = step

        def compute_ppo_advantages(
            self, rewards: Any, input_ids: Any, att_mask: Any, response_masks: Any
        ) -> Any:
            computed = super().compute_ppo_advantages(rewards, input_ids, att_mask, response_masks)
            lengths = att_mask.sum(1).long().tolist()
            self.trained_rows = [
                Row(
                    episode=row.segment[0],
                    token_ids=input_ids[n, : lengths[n]].tolist(),
                    loss_mask=[0, *response_masks[n, : lengths[n] - 1].int().tolist()],
                    advantages=np.array([0.0, *computed[0][n, : lengths[n] - 1].tolist()]),
                )
                for n, row in enumerate(self.segments)
                if self.trajectory["loss_masks"][n]
            ]
            return computed

    return CapturingLearner
