"""RL2's PPO trainer in the newer API, for a run.

Its environments come through its own hook (``generate``), its checkpoints and its trainer are its
own; only the advantages are replaced.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import RL2.trainer.ppo as ppo
import RL2.workers.rollout as native_rollout
import torch.distributed as dist
from RL2.utils.algorithms import compute_approx_kl
from RL2.utils.communication import initialize_global_process_group

from gem_core.errors import GemError
from gem_core.training.runs import RunDir
from gem_rl2.advantages import Advantages, require_installed
from gem_rl2.config import native_config, settings_of
from gem_rl2.metrics import RunLog
from gem_rl2.newer import generate
from gem_rl2.rollout import PLAYERS, Player


class NewerAdvantages(Advantages):
    """The newer API hands over its whole configuration, and a KL penalty that is still to be paid.

    The groups come in the order in which they were finished; which environment is whose is lost.
    """

    in_order = False

    def __call__(self, config: Any, tensors: Any, cu_seqs: Any, step: int) -> None:
        """See `Advantages`."""
        self.episodes, kl = PLAYERS[0].take(), config.actor.kl
        if kl.coef > 0 and kl.type == "reward":
            logps, ref = tensors["old_logps"], tensors["ref_logps"]
            tensors["rewards"] -= kl.coef * compute_approx_kl(logps, ref, kl.reward_estimator)
        super().__call__(config, tensors, cu_seqs, step)


def settings(run: RunDir) -> dict[str, Any]:
    """Overrides: the hook, and the data set of empty rows that the newer API insists on."""
    recipe, rows = run.recipe, run.path / "rows.jsonl"
    count = max(recipe.groups_per_step, recipe.eval.inside_episodes)
    rows.write_text("".join(json.dumps({"row": k}) + "\n" for k in range(count)), encoding="utf-8")
    paths = {f"rollout.{split}.path": str(rows.resolve()) for split in ("train", "test")}
    return {**settings_of(run), **paths, "rollout.env_path": generate.__file__}


def follow(trainer: Any, run: RunDir, advantages: Advantages) -> None:
    """On rank 0: play and log ``run``, where a step ends when RL2 sends the weights."""
    PLAYERS[:] = [Player(run, trainer.rollout.tokenizer)]
    native_rollout.pack_tensor_dicts = PLAYERS[0].pack
    log, send = RunLog(run), trainer.actor.update_rollout

    def update_rollout(rollout: Any, step: int) -> None:
        send(rollout, step)
        own = {**advantages.metrics, "lr": trainer.actor.scheduler.get_last_lr()[0]}
        log.finish(step, advantages.episodes or (), own)

    trainer.actor.update_rollout = update_rollout


def train(run: RunDir, resume: bool) -> None:
    """Train ``run`` in this process, one of torchrun's. Raises GemError for a resume."""
    if resume and any(run.checkpoints.glob("step*")):
        raise GemError(
            "RL2's newer source counts its steps from 1 again after a resume; use 0.0.2."
        )
    initialize_global_process_group(True)
    ppo.compute_advantages = advantages = NewerAdvantages(run.recipe)
    require_installed(ppo.PPOTrainer.train, advantages)
    trainer = ppo.PPOTrainer(native_config(run.recipe, settings(run)))
    if run.recipe.algorithm.estimator == "gae":
        trainer.critic.model.dropout.p = 0.0  # of the head alone, see worker.py
    if dist.get_rank() == 0:
        follow(trainer, run, advantages)
    asyncio.run(trainer.train())
    dist.destroy_process_group()
