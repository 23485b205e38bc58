"""Train a gem-core recipe with OpenRLHF; the wiring in the open.

    python recipes/openrlhf/train.py --run runs/guess                      # tiny, CPU
    python recipes/openrlhf/train.py --run runs/guess-async \\
        --set trainer.openrlhf.train.async_enable=true                     # async mode
    python recipes/openrlhf/train.py --run runs/guess --profile paper      # GPUs

``gem-core train --trainer openrlhf`` does the same and evaluates before and after.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.experiment import training
from gem_core.training.stopping import retake_sigterm
from gem_core.training.tiny import model_source
from gem_openrlhf import config, rollout
from gem_openrlhf.command_line import check_arguments, run_command_line
from gem_openrlhf.launch import longest_context, ray_options, write_rows


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", default="guess-the-number-easy")
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--run", required=True, help="run directory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    args = parser.parse_args()

    recipe = load_recipe(args.baseline, args.profile, args.overrides)
    check_arguments(config.translate(recipe))  # errors before there is a directory
    # `training` locks the run, and has all processes read the same data; SIGTERM saves and ends it.
    # `ray_options` puts stand-ins for flash-attn and vLLM where OpenRLHF imports them, on a CPU.
    with (
        training(args.run, recipe, "openrlhf", resume=args.resume) as run,
        ray_options(recipe, run) as options,
    ):
        arguments = native_arguments(recipe, run, args.resume)
        with ray.init(**options):
            retake_sigterm()
            train(arguments)
    last = run.metrics()[-1]
    print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {run.model}")


def native_arguments(recipe: Recipe, run: RunDir, resume: bool) -> list[str]:
    """What OpenRLHF is told: the recipe in its own flags, and where things are."""
    flags: dict[str, Any] = {
        # Learning rate, clip, batch sizes, sampling, GPUs ...: one flag per recipe key. OpenRLHF
        # gets no gamma, no lambda and no reward model; those flags are refused in a recipe.
        **config.flags(recipe),
        # Rollouts: each vLLM actor loads this file and awaits `AgentExecutor.execute` per sample.
        # It plays a whole episode, each turn by the engine it is given, and returns its tokens.
        "train.agent_func_path": rollout.__file__,
        # Prompts: a row names the first task of a group; the text comes from the environment.
        "data.prompt_dataset": write_rows(recipe, run, "train"),
        "data.max_len": longest_context(recipe),
        "actor.model_name_or_path": model_source(recipe),
        "ckpt.path": str(run.checkpoints.resolve()),
        "ckpt.output_dir": str(run.model.resolve()),
        "ckpt.load_enable": resume,
    }
    if recipe.eval.every:
        flags["eval.dataset"] = write_rows(recipe, run, "eval")
    return config.render(flags)


def train(arguments: list[str]) -> None:
    """Start ``openrlhf.cli.train_ppo_ray`` with gem_core's estimator in its trainer."""
    # Not at the top: OpenRLHF's trainers import flash-attn and vLLM.
    from openrlhf.trainer import ppo_trainer, ppo_trainer_async
    from openrlhf.trainer.ray import ppo_actor, ppo_critic

    from gem_openrlhf import actors, updates

    # Rewards and advantages: this is OpenRLHF's own trainer actor, but its `experience_maker` is a
    # `GemExperienceMaker`. After OpenRLHF's forward passes it hands the rewards of all turns of
    # the step to gem_core's estimator (algorithm.estimator, per-turn gamma and lam), and writes
    # each turn's advantage on that turn's action tokens. Loss, optimizer, weight sync: OpenRLHF's.
    ppo_trainer.PPOTrainer = ray.remote(actors.GemPPOTrainer)
    # Async mode has one actor that trains, and one that draws the prompts in task order.
    ppo_trainer_async.TrainingActor = ray.remote(actors.GemTrainingActor)
    ppo_trainer_async.GenerateSamplesActor = ray.remote(actors.GemGenerateSamplesActor)
    # The models: OpenRLHF's own, but they report a gradient that is not finite, which ends the run.
    ppo_actor.PolicyModelActor = ray.remote(updates.GemPolicyModelActor)
    ppo_critic.CriticModelActor = ray.remote(updates.GemCriticModelActor)
    run_command_line(arguments)


if __name__ == "__main__":
    main()
