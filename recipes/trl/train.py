"""Train a gem-core recipe with TRL; the wiring in the open.

    python recipes/trl/train.py --run runs/guess                       # tiny, CPU
    python recipes/trl/train.py --run runs/guess --profile paper \\
        --set model.path=Qwen/Qwen3-1.7B-Base                          # GPUs, vLLM inside

``gem-core train --trainer trl`` trains the same model and evaluates it before and after.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory
from gem_core.training.experiment import training
from gem_core.training.tiny import model_path
from gem_trl.config import native_config
from gem_trl.launch import needs_processes, prepare, restore, start_processes
from gem_trl.metrics import RunLog
from gem_trl.ranks import leave_ranks
from gem_trl.rollout import task_rows, to_native
from gem_trl.trainer import GemTrainer


def rollout(prompts: list[str], trainer: GemTrainer) -> dict[str, Any]:
    """TRL's ``rollout_func``, called once per training step: one sample for each of ``prompts``.

    The prompts are placeholders, since the recipe says which tasks a step plays.
    """
    # Episode machines ask for one turn after the other; TRL's engine samples each.
    episodes = trainer.play_step(len(prompts))
    # The recipe's estimator gives one advantage per turn, from the episodes of all processes.
    # GemTrainer is a GRPOTrainer that puts them, one per token, in the place of TRL's own once
    # TRL has scored the samples, and checks before each update that the loss reads them.
    trainer.step_batch = trainer.estimate_step(episodes)
    # Prompt, completion and a mask that is 0 on what the environment said.
    return to_native(trainer.step_batch.mine, trainer.processing_class.pad_token_id)


def episode_return(returns: list[float], **_: Any) -> list[float]:
    """TRL's ``reward_funcs``: it wants a reward function, and logs what this one returns."""
    return returns


def train(recipe: Recipe, run: RunDir, resume: bool) -> None:
    """Give TRL's trainer the recipe's episodes, and start it."""
    source = model_path(recipe)
    tokenizer = AutoTokenizer.from_pretrained(source, revision=recipe.model.revision)
    machines = MachineFactory(recipe, tokenizer, one_segment=True)
    trainer = GemTrainer(
        recipe,
        machines,
        # From here on, the arguments of trl.GRPOTrainer.
        model=source,
        processing_class=tokenizer,
        # A trl.GRPOConfig: every key of the recipe under TRL's name, [trainer.trl] merged over it.
        args=native_config(recipe, machines.stop_ids, run.checkpoints),
        # One row for each group of episodes; TRL repeats it.
        train_dataset=task_rows(recipe),
        rollout_func=rollout,
        reward_funcs=episode_return,
        # TRL's log as metrics.jsonl, under the names that every trainer has.
        callbacks=[RunLog(run)],
    )
    checkpoint = restore(trainer, run.checkpoints) if resume else None
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(run.model))
    if trainer.rank == 0:
        last = run.metrics()[-1]
        print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {run.model}")
    leave_ranks()


def main(arguments: Sequence[str]) -> None:
    """Parse the command line, resolve the recipe, train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", default="guess-the-number-easy")
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--run", required=True, help="run directory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    args = parser.parse_args(arguments)

    recipe = load_recipe(args.baseline, args.profile, args.overrides)
    prepare(recipe)  # refuses what TRL cannot honour and hardware that is not here
    # Locks the run, has all processes read the same data; SIGTERM saves and ends it.
    with training(args.run, recipe, "trl", resume=args.resume) as run:
        if needs_processes(recipe):  # one per GPU: this script again, on the run that is there now
            start_processes(recipe, __file__, [*arguments, "--resume"])
        else:
            train(recipe, run, args.resume)


if __name__ == "__main__":
    main(sys.argv[1:])
