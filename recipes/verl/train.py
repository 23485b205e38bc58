"""Train a gem-core recipe with verl; the wiring in the open.

    python recipes/verl/train.py --run runs/guess                      # tiny, CPU
    python recipes/verl/train.py --run runs/guess --profile paper      # GPUs, vLLM
    python recipes/verl/train.py --profile paper --print               # verl's own command line
    python recipes/verl/train.py --run runs/guess \\
        --set 'trainer.verl={"actor_rollout_ref.actor.tau_pos"=1.05}'

verl runs in Ray processes of its own, so what it is given has names: hydra keys that tell each
process what to import. ``gem-core train --trainer verl`` gives it the same keys, and evaluates
before and after.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gem_adapters.hydra import override
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.program import run_program
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.experiment import training
from gem_core.training.script import describe_end, read_command_line
from gem_verl.config import recipe_settings
from gem_verl.launch import last_model, run_settings, session

HOOKS = {
    # Data: no prompts but the numbers of the run's tasks (environment, seed), in order, once.
    "data.custom_cls.path": "pkg://gem_verl.rollout",
    "data.custom_cls.name": "TaskDataset",
    "data.train_files": "gem:train",
    "data.val_files": "gem:eval",
    "data.shuffle": False,
    "trainer.total_epochs": 1,
    # Rollout: GemAgentLoop (in gem_verl.rollout) plays a task, its turns sampled by verl's own
    # servers. Members of a group are tasks of their own, so verl repeats nothing.
    # Rewards: its samples, TurnOutput, have each turn's reward on the turn's last token.
    "actor_rollout_ref.rollout.agent.default_agent_loop": "gem",
    "actor_rollout_ref.rollout.n": 1,
    "actor_rollout_ref.actor.rollout_n": 1,
    "actor_rollout_ref.ref.rollout_n": 1,
    "critic.rollout_n": 1,
    "algorithm.use_kl_in_reward": False,
    # Log-probabilities of the engine are always recorded; the critic's mean is over tokens.
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "critic.loss_agg_mode": "token-mean",
    # Estimators: every process imports the plugin, which registers gem_rebn, gem_grpo, gem_gae ...;
    # the recipe's is in algorithm.adv_estimator. The workers' plugin also counts what updates see.
    "actor_rollout_ref.model.external_lib": "gem_verl.worker_plugin",
    "actor_rollout_ref.actor.calculate_entropy": True,
    # Loop: verl's synchronous trainer. GemSampler hands it the rows of each step: it asserts the
    # estimator before the first, checks that no episode is missing, and writes metrics.jsonl.
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
    "trainer.v1.sampler.custom_sampler.path": "pkg://gem_verl.sampler",
    "trainer.v1.sampler.custom_sampler.name": "GemSampler",
}


def settings(recipe: Recipe, run: RunDir, resume: bool) -> dict[str, Any]:
    """All that verl is given: hydra key -> value."""
    return {
        **HOOKS,
        **recipe_settings(recipe),  # learning rate, batch sizes, sampling ...: the recipe's keys
        # The model (the tiny one is made and warm-started here), the run directory, and the recipe
        # as the dataset, the agent loop and the sampler read it.
        **run_settings(recipe, run, resume),
    }


def train(recipe: Recipe, run: RunDir, resume: bool) -> None:
    """Start verl's own entry point on the recipe; its output goes to ``verl.log``."""
    with session(recipe) as (machine, environment):  # on a CPU: stand-ins for engine and device
        arguments = overrides({**settings(recipe, run, resume), **machine})
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *arguments]
        run_program("verl", command, environment, run.path / "verl.log")
    run.keep_model(last_model(recipe, run))


def overrides(values: Mapping[str, Any]) -> list[str]:
    """Keys and values in hydra's grammar."""
    return [override(key, value) for key, value in values.items()]


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    call = read_command_line(__doc__, shows="verl's overrides")
    if call.show:
        lines = overrides({**HOOKS, **recipe_settings(call.recipe)})
        print("python -m verl.trainer.main_ppo \\\n " + " \\\n ".join(lines))
        return
    # Refuses what verl cannot do, locks the run, has all processes read the same data; SIGTERM
    # saves and ends it.
    with training(call.run, call.recipe, "verl", resume=call.resume) as run:
        train(call.recipe, run, call.resume)
    print(describe_end(run))


if __name__ == "__main__":
    main()
