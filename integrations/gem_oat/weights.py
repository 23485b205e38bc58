"""The weights of Oat's learner: to its actors, into checkpoints, out of them, and as a model."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from gem_adapters.lora import merged, save_merged_model
from gem_core.runs.directory.run_dir import RunDir
from gem_oat.advantages import GemAdvantages


class GemWeights(GemAdvantages):
    """What a learner does with its weights beside training them.

    Attributes:
        run_dir: where checkpoints and the model go.
        start: training steps behind the checkpoint to resume from.
    """

    run_dir: RunDir
    start: int

    @property
    def engines(self) -> dict[Any, str]:
        """The trained DeepSpeed engines and the folders of their checkpoints.

        The policy comes last: a checkpoint counts when the policy's is written.
        """
        folders: dict[Any, str] = {}
        if self.critic is not None:
            folders[self.critic] = str(self.run_dir.checkpoints / "critic")
        folders[self.model.model] = str(self.run_dir.checkpoints / "policy")
        return folders

    def load_checkpoint(self) -> None:
        """Go on from ``start``, actors too: Oat's own resume leaves them at the first weights."""
        for engine, folder in self.engines.items():
            self.strategy.load_ckpt(engine, folder, f"step_{self.start:06d}")
        self.sync_params_to_actors()

    def export(self) -> None:
        """The policy and its tokenizer in Hugging Face format, whole or not at all."""
        self._policy.config.use_cache = True  # Oat turned it off for training
        staging = self.run_dir.path / "export"
        if self.args.lora_rank:
            if self.strategy.is_rank_0():
                save_merged_model(self._policy, self.tokenizer, str(staging / "model"))
            dist.barrier()
        else:
            self.strategy.save_model(self.model, self.tokenizer, str(staging), tag="model")
        if self.strategy.is_rank_0():
            self.run_dir.publish(staging / "model")
            staging.rmdir()

    @property
    def _policy(self) -> Any:
        """The policy without what Oat and DeepSpeed wrap it in; with LoRA a ``PeftModel``."""
        return self.model.model.module

    def sync_params_to_actors(self) -> None:
        """Oat's hand-over of the weights; of adapters, merged without a change of the others.

        Oat merges in place and back, which rounds the base weights each time in bfloat16.
        """
        rank = self.args.lora_rank
        with merged(self._policy):
            self.args.lora_rank = 0  # Oat then sends what ``named_parameters`` returns
            try:
                super().sync_params_to_actors()
            finally:
                self.args.lora_rank = rank
        if self.strategy.is_group_rank_0():
            version = self.start + self.steps
            for done in [actor.futures.set_version(version) for actor in self.actors]:
                done.result()
        dist.barrier()  # no learner asks before

    def save_checkpoint(self, step: int) -> None:
        """Keep the trained engines, with their optimizers, as they are after ``step``."""
        for engine, folder in self.engines.items():
            self.strategy.save_ckpt(
                engine, folder, tag=f"step_{step:06d}", max_num=self.args.max_save_num
            )
