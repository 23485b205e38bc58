"""Train a gem-core recipe with TRL; the wiring in the open.

    python recipes/trl/train.py --run runs/guess                       # tiny, CPU
    python recipes/trl/train.py --run runs/guess --profile paper \\
        --set model.path=Qwen/Qwen3-1.7B-Base                          # GPUs, vLLM inside

``gem-core train --trainer trl`` trains the same model and evaluates it before and after.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory
from gem_core.training.experiment import training
from gem_core.training.script import describe_end, read_command_line
from gem_core.training.tiny import model_path
from gem_trl import launch
from gem_trl.config import native_config
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
    machines = MachineFactory(recipe, tokenizer)
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
    # TRL's own loop, from the last checkpoint with --resume; it writes the model of the run.
    launch.train(trainer, run, resume=resume)
    if trainer.rank == 0:
        print(describe_end(run))
    leave_ranks()


def main(arguments: Sequence[str]) -> None:
    """Parse the command line, resolve the recipe, train."""
    call = read_command_line(__doc__, arguments)
    recipe = call.recipe
    launch.prepare(recipe)  # refuses hardware that is not here
    # Refuses what TRL cannot honour, locks the run, has all processes read the same data; SIGTERM
    # saves and ends it.
    with training(call.run, recipe, "trl", resume=call.resume) as run:
        if launch.needs_processes(recipe):  # one per GPU: this script again, on the run
            launch.start_processes(recipe, __file__, [*arguments, "--resume"])
        else:
            train(recipe, run, call.resume)


if __name__ == "__main__":
    main(sys.argv[1:])
