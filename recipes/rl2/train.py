"""Train a gem-core recipe with RL2; the wiring in the open.

    python recipes/rl2/train.py --run runs/guess                        # tiny, CPU
    python recipes/rl2/train.py --run runs/guess --profile paper
    python recipes/rl2/train.py --print                                 # RL2's own overrides

RL2 has one process per GPU: `main` starts this file again under torchrun, where `train` puts
gem-core's parts into RL2's trainer. ``gem-core train`` does the same, and evaluates.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from gem_adapters.estimate import needs_critic
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.program import run_program
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.experiment import training
from gem_core.training.script import describe_end, read_command_line
from gem_rl2._compat import NEWER, patch_rl2, prune_checkpoints
from gem_rl2.advantages import Advantages, require_installed
from gem_rl2.config import native_config, settings_of, translate
from gem_rl2.launch import publish_model, run_rank, torchrun


def train(run: RunDir, resume: bool) -> None:
    """One process of torchrun's: RL2's ``PPOTrainer``, and what it is given."""
    recipe = run.recipe
    if recipe.hardware.device == "cpu":
        from gem_rl2 import cpu

        cpu.enable()  # stand-ins for the engine and the kernels, before RL2 imports them
    import torch
    import torch.distributed as dist
    from RL2.datasets.rl import state_dict_to_tensor_dict
    from RL2.trainer import ppo
    from RL2.utils.comm import initialize_global_process_group

    from gem_rl2 import worker
    from gem_rl2.rollout import to_native

    class Rollout(worker.Rollout):
        """RL2's engines and loop over the tasks of a step; this is called for each, all at once."""

        async def rollout(self, task: Any, train: bool) -> Any:
            # Play the episode: RL2's engine samples, token ids go in and come out.
            sampling = self.train_sampling_params if train else self.test_sampling_params
            machine = await self.player.play(task, self.router_url, sampling)
            # RL2's tensors: tokens, action mask, log-probs, and the reward of every turn on the
            # last token of its action. With a critic also the state in which a limit cut it off.
            final = machine.bootstrap_state() if needs_critic(recipe) else []
            states = to_native(machine.episode, final)
            tensors = [state_dict_to_tensor_dict(state) for state in states]
            return tensors, {"rewards": [machine.episode.total_reward]}

    # The estimator: RL2's loop calls `compute_advantages`, gem-core's writes one per turn.
    advantages = Advantages(recipe)
    ppo.compute_advantages = advantages
    # The episodes, and workers that can do what a recipe asks (Adam's betas, several passes).
    ppo.Rollout = partial(Rollout, recipe=recipe, run=run, advantages=advantages)
    ppo.Actor = worker.Actor
    ppo.Critic = worker.Critic
    patch_rl2(recipe.model.dtype)

    initialize_global_process_group()
    torch.manual_seed(recipe.seed)  # the critic's head
    # The native configuration: RL2's ppo.yaml with the overrides that --print shows.
    trainer = worker.PPOTrainer(native_config(recipe, settings_of(run, resume)), run)
    require_installed(ppo.PPOTrainer.train, advantages)
    trainer.train()
    dist.destroy_process_group()


def start(recipe: Recipe, run: RunDir, resume: bool) -> None:
    """Run this file under torchrun, one process per GPU, and keep the trained model."""
    environment = dict(os.environ)
    if recipe.hardware.device == "cpu":
        from gem_rl2 import cpu

        environment = cpu.environment(recipe)
    prune_checkpoints(run.checkpoints, recipe.train.keep_checkpoints)  # a half-written one
    command = [*torchrun(recipe), __file__, str(run.path), *(["--resume"] if resume else [])]
    run_program("RL2", command, environment, run.path / "rl2.log")
    publish_model(run)


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    call = read_command_line(__doc__, shows="RL2's overrides")
    if call.show:
        print("\n".join(translate(call.recipe)))
        return
    if NEWER:
        sys.exit("This is the wiring of RL2 0.0.2; train the newer source with gem-core train.")
    # Refuses what RL2 cannot do, locks the run, has all processes read the same data; SIGTERM
    # saves and ends it.
    with training(call.run, call.recipe, "rl2", resume=call.resume) as run:
        start(call.recipe, run, call.resume)
    print(describe_end(run))


if __name__ == "__main__":
    if "LOCAL_RANK" in os.environ:  # set by torchrun, see `start`
        run_rank(train, RunDir(sys.argv[1]), "--resume" in sys.argv)
    else:
        main()
