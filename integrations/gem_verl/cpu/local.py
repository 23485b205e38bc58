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
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from tokenizers import Tokenizer, models
from transformers import AutoConfig, PreTrainedTokenizerFast
from verl.plugin.platform import set_platform
from verl.protocol import DataProto
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_from_nested, response_to_nested

from gem_core.adapters.hydra import override
from gem_core.training.recipe import Recipe
from gem_verl.advantages import require_installed
from gem_verl.config import payload, translate
from gem_verl.cpu.platform import CPUPlatform
from gem_verl.rollout import TurnOutput

FIELDS = ("prompts", "responses", "response_mask", "rm_scores")


def configuration(recipe: Recipe, model_dir: str, **more: Any) -> Any:
    """verl's whole configuration for ``recipe``, composed by verl's own files."""
    settings = {
        "actor_rollout_ref.model.path": model_dir,
        "+data.gem_recipe": payload(recipe),
        "actor_rollout_ref.actor.optim.total_training_steps": recipe.train.steps,
        **more,
    }
    with initialize_config_module("verl.trainer.config", version_base=None):
        extra = [override(key, value) for key, value in settings.items()]
        return compose("ppo_trainer", overrides=[*translate(recipe), *extra])


def tokenizer_dir(model_dir: str, folder: str) -> str:
    """``model_dir`` if it has a tokenizer, else ``folder``: a word per id, 0 pads, 1 stops."""
    if (Path(model_dir) / "tokenizer_config.json").exists():
        return model_dir
    size = AutoConfig.from_pretrained(model_dir).vocab_size
    words = {"<pad>": 0, "<stop>": 1, **{f"<{i}>": i for i in range(2, size)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<stop>"
    ).save_pretrained(folder)
    return folder


def _process_group() -> None:
    """A world of one over gloo, which verl then finds in place."""
    set_platform(CPUPlatform())
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29555")
    if not torch.distributed.is_initialized():
        store = torch.distributed.FileStore(tempfile.mktemp(prefix="gem_verl_store"), 1)
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
        """The rows of ``samples`` with old log-probs and advantages, as verl's workers get them."""
        samples = [sample for sample in samples if any(sample.response_mask)]
        rows = [self._row(sample) for sample in samples]
        nested = {
            key: torch.nested.as_nested_tensor([row[key] for row in rows], layout=torch.jagged)
            for key in rows[0]
        }
        batch = TensorDict(nested, batch_size=len(rows))
        inputs = batch.clone()
        tu.assign_non_tensor(
            inputs,
            calculate_entropy=True,
            compute_loss=False,
            temperature=self.recipe.sampling.temperature,
        )
        found = self.worker.compute_log_prob(inputs)
        found = found.get() if not isinstance(found, TensorDict) else found
        batch["old_log_probs"] = response_from_nested(found["log_probs"], batch["response_mask"])
        for name, values in zip(
            ("advantages", "returns"), self._advantages(batch, samples), strict=True
        ):
            batch[name] = response_to_nested(values, batch["response_mask"])
        return batch

    def update(self, batch: TensorDict) -> dict[str, Any]:
        """One call of verl's actor update; returns its metrics."""
        data, actor = batch.clone(), self.config.actor_rollout_ref.actor
        size = -(-len(batch) // self.recipe.algorithm.minibatches)
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
        output = self.worker.update_actor(data)
        output = output.get() if not isinstance(output, TensorDict) else output
        return dict(tu.get(output, "metrics"))

    def weights(self) -> dict[str, torch.Tensor]:
        """The actor's weights as verl sends them to its rollout."""
        pairs = self.engine.get_per_tensor_param()[0]
        return {name: tensor.detach().clone() for name, tensor in pairs}

    def _row(self, sample: TurnOutput) -> dict[str, torch.Tensor]:
        fields = sample.as_dict()
        row = {key: fields[key] for key in FIELDS}
        if "rollout_log_probs" in fields:
            row["rollout_log_probs"] = fields["rollout_log_probs"]
        row["input_ids"] = torch.cat([fields["prompts"], fields["responses"]])
        row["position_ids"] = torch.arange(len(row["input_ids"]))
        row["loss_mask"] = row["response_mask"]
        return row

    def _advantages(self, batch: TensorDict, samples: Sequence[TurnOutput]) -> Any:
        """verl's own advantage call, looked up where its trainer looks it up."""
        from verl.trainer.ppo.v1 import trainer_base

        padded = {k: batch[k].to_padded_tensor(0) for k in ("response_mask", "rm_scores")}
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
