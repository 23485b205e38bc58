"""Train a gem-core recipe with Oat; the wiring in the open.

    python recipes/oat/train.py --run runs/guess                        # tiny, CPU
    python recipes/oat/train.py --run runs/guess --profile paper \\
        --set hardware.gpus_per_node=8                                  # GPUs, Python 3.10

It is an Oat script like any other: arguments, an actor, a learner, a program. ``gem-core train
--trainer oat`` does the same and evaluates before and after.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from gem_core.episodes.rollout import play_batch, require_healthy
from gem_core.errors import RecipeError
from gem_core.runs.tasks import step_tasks
from gem_core.training.experiment import training
from gem_core.training.script import describe_end, read_command_line
from gem_oat._compat import require_gpu_stack

if torch.cuda.is_available():
    require_gpu_stack()
else:
    from gem_oat.cpu import install

    install()  # stand-ins for vLLM and launchpad, before Oat is imported

# isort: split
from oat.interface import get_program

from gem_oat import config, launch
from gem_oat.advantages import estimate_rows
from gem_oat.learner import GemLearner
from gem_oat.nodes import run_nodes, watched
from gem_oat.rollout import GemActor
from gem_oat.watchdog import VARIABLE


class Actor(GemActor):
    """Oat's ``PPOActor``: where it would answer prompts, it plays episodes."""

    def step(self, prompts: list[str], formatted_prompts: list[str], references: Any = None) -> Any:
        """Oat asks for rollouts; a prompt names a training step and a learner's part of it."""
        parts = []
        for prompt in prompts:
            step, shard, shards = map(int, prompt.split("/"))
            machines = [self.factory(task) for task in step_tasks(self.recipe, step, shard, shards)]
            # One call of Oat's vLLM engine per turn, for all episodes that still run.
            require_healthy(play_batch(machines, self.policy))
            # A row (Oat's TransitionData) is an episode, or a segment where its history is
            # rewritten; its turns carry their rewards.
            parts.append(self.to_rows(machines))
        return self.hand_over(parts)


class Learner(GemLearner):
    """Oat's ``PPOLearner``: its loop, loss and optimizer, on the turns of the episodes."""

    def compute_monte_carlo_advantages(self, rewards: Any, response_masks: Any) -> Any:
        """One advantage per turn: the recipe's estimator, over all learners' turns."""
        estimated = estimate_rows(
            self.rows,
            self.recipe.algorithm,
            self.reduce,  # a sum over the learners
            rewards=self.turn_rewards(rewards),  # the environment's, and Oat's KL penalty
        )
        self.summary = estimated.metrics
        self.turn_advantages = estimated.advantages.tolist()  # for the metrics of the update
        return torch.from_numpy(estimated.advantages).to(rewards)

    # With estimator = "gae" Oat asks compute_ppo_advantages (gem_oat/advantages.py) instead.


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    call = read_command_line(__doc__)
    recipe = call.recipe
    if recipe.hardware.device == "gpu" and not torch.cuda.is_available():
        raise RecipeError("the recipe asks for a GPU, and there is none: --set hardware.device=cpu")
    print("Oat's arguments:", *config.translate(recipe))  # refuses what Oat cannot do
    with training(call.run, recipe, "oat", resume=call.resume) as run:  # lock, data, SIGTERM
        start = launch.last_checkpoint(run) if call.resume else 0
        if start < recipe.train.steps:
            # Oat's ``PPOArgs``: the recipe as its command line, read by its own parser.
            train(launch.arguments(recipe, run, start))
        launch.require_model(recipe, run)
    print(describe_end(run))


def train(args: Any) -> None:
    """Oat's own program: a process per actor and learner; all in this one without a GPU."""
    if args.gem.recipe.hardware.device == "cpu":
        from gem_oat.cpu import in_process

        in_process.launch(args, Learner, Actor)
        return
    program, resources = get_program(args, learner_cls=Learner, actor_cls=Actor)
    with watched() as mark:  # nothing is left behind, however this process ends
        os.environ[VARIABLE] = mark
        run_nodes(program, resources, args.launch_type)


if __name__ == "__main__":
    main()
