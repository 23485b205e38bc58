"""verl's actor in this process, without Ray: conversion, log-probs, advantages, loss and update.

What verl's trainer does between its sampler and its workers through TransferQueue happens here on
the same tensors in memory; the configuration, the advantage call, the FSDP2 engine, the loss and
the optimizer are verl's own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_verl.cpu import harness

os.environ.update(harness.environment({}))  # before verl is imported, where that did not happen yet

import numpy as np
import torch
from tensordict import TensorDict
from tokenizers import Tokenizer, models
from transformers import AutoConfig, PreTrainedTokenizerFast
from verl.plugin.platform import set_platform
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_from_nested, response_to_nested

from gem_adapters.hydra import override
from gem_adapters.support import SUPPORT
from gem_core.runs.recipe.recipe import Recipe
from gem_verl.advantages import require_installed
from gem_verl.config import payload, translate
from gem_verl.cpu.platform import CPUPlatform
from gem_verl.native import compose_native
from gem_verl.rollout import TurnOutput

FIELDS = ("prompts", "responses", "response_mask", "rm_scores")
"""What a row takes over from a sample as it is."""


def configuration(recipe: Recipe, model_dir: str, **more: Any) -> Any:
    """Compose verl's whole configuration for ``recipe`` from verl's own files.

    Args:
        recipe: the experiment.
        model_dir: the model to train.
        more: further native settings, which win.
    """
    settings = {
        "actor_rollout_ref.model.path": model_dir,
        "+data.gem_recipe": payload(recipe),
        "actor_rollout_ref.actor.optim.total_training_steps": recipe.train.steps,
        **more,
    }
    overrides = [override(key, value) for key, value in settings.items()]
    return compose_native([*translate(recipe), *overrides])


def tokenizer_dir(model_dir: str, folder: str) -> str:
    """Return ``model_dir`` if it has a tokenizer, else ``folder``, with a tokenizer made there.

    It has one word per id; id 0 pads and id 1 stops.
    """
    if (Path(model_dir) / "tokenizer_config.json").exists():
        return model_dir
    size = AutoConfig.from_pretrained(model_dir).vocab_size
    words = {"<pad>": 0, "<stop>": 1}
    words |= {f"<{number}>": number for number in range(2, size)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<stop>",
    )
    tokenizer.save_pretrained(folder)
    return folder


def _process_group() -> None:
    """Start a group over gloo, which verl then uses: one rank, or as torchrun's variables say."""
    set_platform(CPUPlatform())
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        return
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29555")
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


class LocalActor:
    """One rank of verl's actor.

    Args:
        recipe: the experiment, a CPU one.
        model_dir: the model to train.
        more: further native settings.
    """

    def __init__(self, recipe: Recipe, model_dir: str, **more: Any) -> None:
        _process_group()
        from verl.workers.engine_workers import ActorRolloutRefWorker

        self.recipe = recipe
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "actor_rollout_ref.model.tokenizer_path": tokenizer_dir(model_dir, folder),
                **more,
            }
            self.config = configuration(recipe, model_dir, **settings)
            require_installed(recipe.algorithm.estimator, self.config.algorithm)
            self.worker = ActorRolloutRefWorker(self.config.actor_rollout_ref, role="actor")
            self.worker.init_model()
        self.engine = self.worker.actor.engine

    def prepare(self, samples: Sequence[TurnOutput]) -> TensorDict:
        """Return the rows of ``samples`` with old log-probs and advantages, for verl's workers."""
        samples = [sample for sample in samples if any(sample.response_mask)]
        rows = [self._row(sample) for sample in samples]
        nested = {
            key: torch.nested.as_nested_tensor([row[key] for row in rows], layout=torch.jagged)
            for key in rows[0]
        }
        batch = TensorDict(nested, batch_size=len(rows))
        mask = batch["response_mask"]
        batch["old_log_probs"] = response_from_nested(self._log_probs(batch), mask)
        advantages, returns = self._advantages(batch, samples)
        batch["advantages"] = response_to_nested(advantages, mask)
        batch["returns"] = response_to_nested(returns, mask)
        correction = self.config.algorithm.rollout_correction
        if correction.rollout_is:
            batch["rollout_is_weights"] = response_to_nested(self._weights(batch, correction), mask)
        return batch

    def update(self, batch: TensorDict) -> dict[str, Any]:
        """Call verl's actor update once and return its metrics.

        Args:
            batch: this rank's rows; every rank has as many.
        """
        actor = self.config.actor_rollout_ref.actor
        data = batch.clone()
        size = -(-len(batch) // self.recipe.algorithm.minibatches)
        size *= torch.distributed.get_world_size()  # verl counts the rows of all ranks
        tu.assign_non_tensor(
            data,
            calculate_entropy=False,
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=size,
            mini_batch_size=size,
            epochs=actor.ppo_epochs,
            seed=actor.data_loader_seed,
            dataloader_kwargs={"shuffle": actor.shuffle},
            temperature=self.recipe.sampling.temperature,
        )
        output = _result(self.worker.update_actor(data))
        return dict(tu.get(output, "metrics"))

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the actor's weights as verl sends them to its rollout."""
        pairs = self.engine.get_per_tensor_param()[0]
        return {name: tensor.detach().clone() for name, tensor in pairs}

    def _row(self, sample: TurnOutput) -> dict[str, torch.Tensor]:
        fields = sample.as_dict()
        row = {key: fields[key] for key in FIELDS}
        row |= {name: fields[name] for name in ("rollout_log_probs", SUPPORT) if name in fields}
        row["input_ids"] = torch.cat([fields["prompts"], fields["responses"]])
        row["position_ids"] = torch.arange(len(row["input_ids"]))
        row["loss_mask"] = row["response_mask"]
        return row

    def _log_probs(self, batch: TensorDict) -> torch.Tensor:
        """Return the log-probs of the actor before its update."""
        inputs = batch.clone()
        tu.assign_non_tensor(
            inputs,
            calculate_entropy=True,
            compute_loss=False,
            temperature=self.recipe.sampling.temperature,
        )
        return _result(self.worker.compute_log_prob(inputs))["log_probs"]

    def _weights(self, batch: TensorDict, correction: Any) -> torch.Tensor:
        """Return what verl's own correction multiplies the loss of each token by."""
        names = ("response_mask", "old_log_probs", "rollout_log_probs")
        padded = {name: batch[name].to_padded_tensor(0) for name in names}
        data = DataProto(batch=TensorDict(padded, batch_size=len(batch)))
        data, _ = compute_rollout_correction_and_add_to_batch(data, correction)
        weights: torch.Tensor = data.batch["rollout_is_weights"]
        return weights

    def _advantages(
        self, batch: TensorDict, samples: Sequence[TurnOutput]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Make verl's own advantage call, looked up where its trainer looks it up."""
        from verl.trainer.ppo.v1 import trainer_base

        padded = {key: batch[key].to_padded_tensor(0) for key in ("response_mask", "rm_scores")}
        data = DataProto(batch=TensorDict(padded, batch_size=len(samples)))
        data.batch["token_level_rewards"] = data.batch["rm_scores"]
        labels = [sample.extra_fields["label"] for sample in samples]
        data.non_tensor_batch["uid"] = np.array(labels, dtype=object)
        algorithm = self.config.algorithm
        data = trainer_base.compute_advantage_for_multi_trajectories(
            data,
            batch_keys=[f"u{i}_0_0" for i in range(len(samples))],
            adv_estimator=algorithm.adv_estimator,
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            num_repeat=1,
            config=algorithm,
        )
        return data.batch["advantages"], data.batch["returns"]


def _result(output: Any) -> TensorDict:
    """Return what a worker's method computed; some of them return a future."""
    return output if isinstance(output, TensorDict) else output.get()
