"""RL2's PPO trainer in the newer API, for a run.

Its environments come through its own hook (``generate``), its checkpoints and its trainer are its
own; only the advantages are replaced.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import RL2
import RL2.trainer.ppo as ppo
import RL2.workers.fsdp.critic as native_critic
import RL2.workers.rollout as native_rollout
import torch.distributed as dist
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from RL2.utils.algorithms import compute_approx_kl
from RL2.utils.communication import initialize_global_process_group

from gem_adapters.estimate import needs_critic
from gem_adapters.value_heads import start_at_zero
from gem_core.errors import GemError, RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.stopping import stop_requested
from gem_rl2.advantages import Advantages, require_installed
from gem_rl2.config import settings_of, translate
from gem_rl2.metrics import RunLog
from gem_rl2.native import compose_native
from gem_rl2.newer import generate
from gem_rl2.rollout import PLAYERS, EpisodePlayer


class NewerAdvantages(Advantages):
    """Advantages in the newer API.

    It hands over its whole configuration, and a KL penalty that is still to be subtracted. The
    groups come in the order in which they were finished; which environment is whose is lost.
    """

    in_order = False

    def __call__(self, config: Any, tensors: Any, cu_seqs: Any, step: int) -> None:
        """Subtract the KL penalty and compute the advantages, see `Advantages`."""
        self.episodes = PLAYERS[0].take()
        kl = config.actor.kl
        if kl.coef > 0 and kl.type == "reward":
            logps = tensors["old_logps"]
            ref_logps = tensors["ref_logps"]
            penalty = compute_approx_kl(logps, ref_logps, kl.reward_estimator)
            tensors["rewards"] -= kl.coef * penalty
        super().__call__(config, tensors, cu_seqs, step)


def settings(run: RunDir) -> dict[str, Any]:
    """Overrides: the hook, and the data set of empty rows that the newer API insists on."""
    recipe = run.recipe
    count = max(recipe.groups_per_step, recipe.eval.inside_episodes)
    rows = run.path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"row": k}) + "\n" for k in range(count)), encoding="utf-8")
    return {
        **settings_of(run),
        "rollout.train.path": str(rows.resolve()),
        "rollout.test.path": str(rows.resolve()),
        "rollout.env_path": generate.__file__,
    }


def play_and_log(trainer: Any, run: RunDir, advantages: Advantages) -> None:
    """On rank 0: play and log ``run``, where a step ends when RL2 sends the weights."""
    player = EpisodePlayer(run, trainer.rollout.tokenizer)
    PLAYERS[:] = [player]
    native_rollout.pack_tensor_dicts = player.pack
    log = RunLog(run)
    send = trainer.actor.update_rollout
    rates = trainer.actor.scheduler.get_last_lr()[:1]

    def update_rollout(rollout: Any, step: int) -> None:
        send(rollout, step)
        player.version = step
        log.finish(step, advantages.episodes or (), {**advantages.metrics, "lr": rates[0]})
        rates[:] = trainer.actor.scheduler.get_last_lr()[:1]  # of the next step
        if stop_requested(run):
            raise GemError(
                f"Ended after step {step} as asked, for good: RL2's newer source cannot resume."
            )

    trainer.actor.update_rollout = update_rollout


def choose_backends(overrides: Sequence[str]) -> None:
    """Tell Hydra what was composed, as its own entry point does: RL2 asks it for its backends."""
    folder = str(Path(RL2.__path__[0], "trainer", "config"))
    with initialize_config_dir(folder, version_base=None):
        HydraConfig.instance().set_config(compose("ppo", list(overrides), return_hydra_config=True))


class FSDPCritic(native_critic.FSDPCritic):
    """RL2's critic, read and trained as that of the release, see `gem_rl2.worker.Critic`."""

    def _prepare_model_optimizer(self) -> None:
        start_at_zero(self.model)
        super()._prepare_model_optimizer()

    def compute_values(self, tensor_dict: Any, step: int) -> Any:
        """Also read the last token of each row: of the states in which episodes were cut off."""
        if tensor_dict is None:
            return super().compute_values(None, step)
        mask = tensor_dict["action_mask"]
        read = {**tensor_dict, "action_mask": mask | tensor_dict["eos_mask"]}
        return {**super().compute_values(read, step), "action_mask": mask}

    def ppo_update(self, tensor_dict: Any, step: int) -> Any:
        """Restrict the loss to where the critic is read; RL2 sums all numbers in these tensors."""
        if tensor_dict is not None:
            mask = tensor_dict["value_mask"]
            summed = ("action_mask", "old_values", "returns")
            tensor_dict = {**tensor_dict, **{name: tensor_dict[name] * mask for name in summed}}
        return super().ppo_update(tensor_dict, step)


def train(run: RunDir, resume: bool) -> None:
    """Train ``run`` in this process, one of torchrun's.

    Raises:
        RecipeError: old weights are asked for.
        GemError: a resume, which the newer source does not do right, or the recipe's estimator is
            not installed in RL2's loop.
    """
    if run.recipe.sampling.staleness:
        raise RecipeError(
            "sampling.staleness: RL2's newer source does not number its weights here; use 0.0.2."
        )
    if resume and any(run.checkpoints.glob("step*")):
        raise GemError(
            "RL2's newer source counts its steps from 1 again after a resume; use 0.0.2."
        )
    initialize_global_process_group(True)
    native_critic.FSDPCritic = FSDPCritic
    advantages = NewerAdvantages(run.recipe)
    ppo.compute_advantages = advantages
    require_installed(ppo.PPOTrainer.train, advantages)
    overrides = translate(run.recipe, settings=settings(run))
    choose_backends(overrides)
    trainer = ppo.PPOTrainer(compose_native(overrides))
    if needs_critic(run.recipe):
        trainer.critic.model.dropout.p = 0.0  # of the head alone, see worker.py
        scale = trainer.critic._scale_loss
        trainer.critic._scale_loss = lambda loss: scale(loss) / 2  # half the squared error
    if dist.get_rank() == 0:
        play_and_log(trainer, run, advantages)
    asyncio.run(trainer.train())
    dist.destroy_process_group()
