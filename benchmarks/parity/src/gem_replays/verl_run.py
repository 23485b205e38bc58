"""verl's actor, reference model and critic in this process, over a whole recorded run.

What verl's trainer does between its workers through TransferQueue happens here on the same tensors
in memory, in the order of ``PPOTrainer.step``; the workers, their engines, losses, optimizers and
schedules are verl's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import (
    ActorRolloutRefWorker,
    TrainingWorker,
    TrainingWorkerConfig,
)
from verl.workers.utils.losses import value_loss
from verl.workers.utils.padding import response_from_nested, response_to_nested

from gem_adapters.token_rows import read_labels
from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.recorded import StepTrace, TracedRow, Unit, Weights, without_tied
from gem_parity.reference_lora import plain_names
from gem_verl.cpu.local import LocalActor, _result
from gem_verl.rollout import TurnOutput
from gem_verl.values import minibatch_rows

PADDING_ID = 1
"""Token of verl's padding rows."""
ROW = "gem_row"
"""Field of a row: its place among those of the step; -1 in padding."""


class RecordedTrainer(LocalActor):
    """One rank of verl's actor, with the reference model and the critic that the recipe asks for.

    Args:
        recipe: the experiment, a CPU one.
        model_dir: the model to train.
    """

    def __init__(self, recipe: Recipe, model_dir: str) -> None:
        settings = {  # as verl's trainer sets them
            "critic.model.path": model_dir,
            "critic.optim.total_training_steps": recipe.train.steps,
        }
        super().__init__(recipe, model_dir, **settings)
        self.minibatches: list[list[Unit]] = []
        self.critic_minibatches: list[list[Unit]] = []
        self.rows: list[TracedRow] = []
        self.units: list[list[Unit]] = []
        """What is trained in each row of the step, without padding."""
        self._record(self.worker.actor, self.minibatches)
        self.ref: Any = None
        if recipe.algorithm.kl_coef:
            self.ref = ActorRolloutRefWorker(self.config.actor_rollout_ref, role="ref")
            self.ref.init_model()
        self.critic: Any = self._make_critic() if self.config.critic.enable else None

    def _make_critic(self) -> Any:
        """Return verl's critic worker, configured as ``PPOTrainer`` does."""
        settings = self.config.critic
        settings.model.tokenizer_path = settings.model.path
        configuration = omega_conf_to_dataclass(settings)
        configuration.engine.infer_max_token_len_per_gpu = (
            configuration.ppo_infer_max_token_len_per_gpu
        )
        configuration.engine.max_token_len_per_gpu = configuration.ppo_infer_max_token_len_per_gpu
        critic = TrainingWorker(
            config=TrainingWorkerConfig(
                model_type="value_model",
                model_config=configuration.model,
                engine_config=configuration.engine,
                optimizer_config=configuration.optim,
                checkpoint_config=configuration.checkpoint,
                profiler_config=None,
            )
        )
        critic.reset()
        critic.set_loss_fn(partial(value_loss, config=configuration))
        self._record(critic, self.critic_minibatches)
        return critic

    def _record(self, worker: Any, minibatches: list[list[Unit]]) -> None:
        """Note what is trained in each minibatch of ``worker``."""
        train_batch = worker.train_batch

        def recorded(data: TensorDict) -> Any:
            rows = [int(row) for row in data[ROW] if row >= 0]
            minibatches.append([unit for row in rows for unit in self.units[row]])
            return train_batch(data)

        worker.train_batch = recorded

    def train(self, samples: Sequence[TurnOutput], episodes: Sequence[Episode]) -> None:
        """Train one step.

        Args:
            samples: of the step's episodes, in task order.
            episodes: the step's, in the order of the recorded batch.
        """
        self.minibatches.clear()
        self.critic_minibatches.clear()
        trained = [sample for sample in samples if any(sample.response_mask)]
        size = minibatch_rows(self.recipe, len(trained))
        batch, labels = self._batch(trained, size)
        self.units = _units(trained, episodes)
        batch[ROW] = torch.tensor([row if label else -1 for row, label in enumerate(labels)])
        mask = batch["response_mask"]
        batch["old_log_probs"] = response_from_nested(self._log_probs(batch), mask)
        if self.ref is not None:
            log_probs = _result(self.ref.compute_ref_log_prob(self._for_inference(batch)))
            batch["ref_log_prob"] = response_from_nested(log_probs["log_probs"], mask)
        if self.critic is not None:
            values = _result(self.critic.infer_batch(self._for_inference(batch)))["values"]
            batch["values"] = response_from_nested(values, mask)
        self._estimate(batch, labels)
        self.rows = [_traced(batch, row) for row, label in enumerate(labels) if label]
        if self.critic is not None:
            self.critic.train_mini_batch(self._for_training(batch, size, self.config.critic))
        actor = self.config.actor_rollout_ref.actor
        self.worker.update_actor(self._for_training(batch, size, actor))

    def _batch(self, samples: Sequence[TurnOutput], size: int) -> tuple[TensorDict, list[str]]:
        """Return the rows and their labels, filled up with verl's padding rows ("" as label)."""
        rows = [self._row(sample) for sample in samples]
        labels = [str(sample.extra_fields["label"]) for sample in samples]
        while len(rows) % size:
            padding, _ = construct_minimal_padding_template(dict(rows[0]), {}, PADDING_ID)
            rows.append({key: padding[key] for key in rows[0]})
            labels.append("")
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        nested = {
            key: torch.nested.as_nested_tensor(column, layout=torch.jagged)
            for key, column in columns.items()
        }
        return TensorDict(nested, batch_size=len(rows)), labels

    def _for_inference(self, batch: TensorDict) -> TensorDict:
        data = batch.clone()
        temperature = self.recipe.sampling.temperature
        tu.assign_non_tensor(
            data, calculate_entropy=False, compute_loss=False, temperature=temperature
        )
        return data

    def _for_training(self, batch: TensorDict, size: int, role: Any) -> TensorDict:
        """Return the rows with what ``PPOTrainer._update_actor`` and its like add to them."""
        data = batch.clone()
        tu.assign_non_tensor(
            data,
            calculate_entropy=self.recipe.algorithm.entropy_coef != 0.0,
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=size,
            mini_batch_size=size,
            epochs=role.ppo_epochs,
            seed=role.data_loader_seed,
            dataloader_kwargs={"shuffle": role.shuffle},
            temperature=self.recipe.sampling.temperature,
        )
        return data

    def _estimate(self, batch: TensorDict, labels: Sequence[str]) -> None:
        """Make verl's own advantage call, looked up where its trainer looks it up."""
        from verl.trainer.ppo.v1 import trainer_base

        fields = ["response_mask", "rm_scores"]
        if self.critic is not None:
            fields.append("values")
        padded = {key: batch[key].to_padded_tensor(0) for key in fields}
        data = DataProto(batch=TensorDict(padded, batch_size=len(labels)))
        data.batch["token_level_rewards"] = data.batch["rm_scores"]
        data.non_tensor_batch["uid"] = np.array([label or "pad" for label in labels], dtype=object)
        algorithm = self.config.algorithm
        data = trainer_base.compute_advantage_for_multi_trajectories(
            data,
            batch_keys=[f"u{row}_0_0" for row in range(len(labels))],
            adv_estimator=algorithm.adv_estimator,
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            num_repeat=1,
            config=algorithm,
        )
        for field in ("advantages", "returns"):
            batch[field] = response_to_nested(data.batch[field], batch["response_mask"])

    def _trained(self) -> Weights:
        """Return what verl sends to its engines; with adapters, those and the layers under them."""
        if not self.recipe.model.lora.rank:
            return without_tied({name: _array(tensor) for name, tensor in self.weights().items()})
        named = self.engine.module.named_parameters()
        whole = ((n, p.full_tensor() if hasattr(p, "full_tensor") else p) for n, p in named)
        return plain_names((name, _array(tensor)) for name, tensor in whole)

    def trace(self) -> StepTrace:
        """Return the weights, and what the last step trained in which order."""
        trace = StepTrace(self._trained(), {}, list(self.minibatches))
        trace.critic_minibatches = list(self.critic_minibatches)
        trace.rows = self.rows
        if self.critic is not None:
            pairs = self.critic.engine.get_per_tensor_param()[0]
            trace.critic = {_critic_name(name): _array(tensor) for name, tensor in pairs}
        return trace


def _traced(batch: TensorDict, row: int) -> TracedRow:
    """Return a row as verl's loss will read it."""
    ids = batch["input_ids"][row].tolist()
    before = np.zeros(len(batch["prompts"][row]))
    fields = ("advantages", "old_log_probs")
    advantages, old = (np.concatenate([before, batch[f][row].double().numpy()]) for f in fields)
    mask = [*before.astype(int).tolist(), *batch["response_mask"][row].int().tolist()]
    return TracedRow(ids, mask, advantages, old)


def _units(samples: Sequence[TurnOutput], episodes: Sequence[Episode]) -> list[list[Unit]]:
    """Return the trained turns of each sample, which its label finds in ``episodes``."""
    turns: dict[tuple[int, int], list[Unit]] = {}
    for number, episode in enumerate(episodes):
        for segment in episode.segments:
            trained = [turn for turn, start, _ in segment.spans if segment.loss_mask[start]]
            if trained:
                key = (episode.index, segment.spans[0][0])
                turns[key] = [(number, turn) for turn in trained]
    labels = read_labels([sample.extra_fields["label"] for sample in samples])
    return [turns[label.episode, label.turn] for label in labels]


def _array(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().double().cpu().numpy().copy()
    return array


def _critic_name(name: str) -> str:
    """Return the name that `gem_parity.recorded.StepTrace` wants."""
    return name.replace("model.", "body.", 1).replace("score.", "head.", 1)
