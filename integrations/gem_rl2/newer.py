"""One rank of RL2's PPO trainer in the newer API: ``python -m gem_rl2.newer RUN_DIR [--resume]``.

Its environments come through its own hook (``generate``), its checkpoints and its trainer are its
own; only the advantages are replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import hydra
import RL2.trainer.ppo as ppo
import torch.distributed as dist
import wandb
from RL2.utils.algorithms import compute_approx_kl
from RL2.workers.fsdp.actor import FSDPActor

from gem_core.rollout import require_healthy
from gem_core.runs import RunDir
from gem_core.tiny import model_path
from gem_rl2 import env
from gem_rl2._compat import prune
from gem_rl2.advantages import Advantages, check_turns, recover_turns, require_installed
from gem_rl2.config import translate
from gem_rl2.generate import PLAYERS, Player
from gem_rl2.metrics import StepLog


class NewerAdvantages(Advantages):
    """The newer API hands over its whole configuration, and a KL penalty that is still to be paid.

    The groups come in the order in which they were finished; which environment is whose is lost.
    """

    played: list[Any]

    def __call__(self, config: Any, tensors: Any, cu_seqs: Any, step: int) -> None:
        """See :class:`Advantages`."""
        self.played = PLAYERS[0].take()
        require_healthy(self.played)
        check_turns(self.played, recover_turns(tensors["action_mask"], cu_seqs))
        kl = config.actor.kl
        if kl.coef > 0 and kl.type == "reward":
            logps, ref = tensors["old_logps"], tensors["ref_logps"]
            tensors["rewards"] -= kl.coef * compute_approx_kl(logps, ref, kl.reward_estimator)
        super().__call__(config, tensors, cu_seqs, step)


def install(run: RunDir, advantages: NewerAdvantages) -> None:
    """Replace the advantages and log at the end of each step."""
    ppo.compute_advantages = advantages
    train, update = ppo.PPOTrainer.train, FSDPActor.update_rollout
    require_installed(train, advantages)

    def begin(self: Any) -> Any:
        if dist.get_rank() == 0:
            wandb.log = StepLog(run, run.recipe)
            PLAYERS[:] = [Player(run, self.rollout.tokenizer)]
            done = self.load_dir.rpartition("step")[2] if self.load_dir else "0"
            PLAYERS[0].begin(int(done))
        return train(self)

    def update_rollout(self: Any, rollout: Any, step: int) -> None:
        update(self, rollout, step)
        if dist.get_rank() == 0:
            wandb.log.finish(step, advantages.played, advantages.summary)
            prune(run.checkpoints, run.recipe.train.keep_checkpoints)

    ppo.PPOTrainer.train, FSDPActor.update_rollout = begin, update_rollout


def settings(run: RunDir, resume: bool) -> dict[str, Any]:
    """Paths of the run, and the data set of empty rows that the newer API insists on."""
    recipe, rows = run.recipe, run.path / "rows.jsonl"
    count = max(recipe.groups_per_step, recipe.eval.inside_episodes)
    rows.write_text("".join(json.dumps({"row": k}) + "\n" for k in range(count)), encoding="utf-8")
    model = model_path(recipe)
    return {
        "actor.model_name": model,
        "critic.model_name": model,
        "rollout.train.path": str(rows.resolve()),
        "rollout.test.path": str(rows.resolve()),
        "rollout.env_path": env.__file__,
        "trainer.save_dir": str(run.checkpoints.resolve()),
        "trainer.load_ckpt_from": "latest" if resume else None,
        "hydra.run.dir": str(run.path.resolve()),
        "hydra.output_subdir": None,
    }


def main(arguments: list[str]) -> None:
    """Train the run in the directory ``arguments[0]``."""
    run, resume = RunDir(arguments[0]), "--resume" in arguments[1:]
    os.environ["GEM_RL2_RUN"] = str(run.path)
    install(run, NewerAdvantages(run.recipe))
    sys.argv[1:] = translate(run.recipe, newer=True, settings=settings(run, resume))
    folder = Path(ppo.__file__).with_name("config")
    hydra.main(str(folder), "ppo", version_base=None)(ppo.main.__wrapped__)()
    if int(os.environ["RANK"]) == 0:
        latest = run.checkpoints / ("latest" if run.recipe.train.save_every else "") / "actor"
        shutil.copytree(latest, run.model, dirs_exist_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
