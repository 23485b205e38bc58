"""Train a gem-core recipe with verl; the wiring in the open.

    python recipes/verl/train.py --run runs/guess                      # tiny, CPU
    python recipes/verl/train.py --run runs/guess --profile paper      # GPUs, vLLM
    python recipes/verl/train.py --profile paper --print               # verl's own command line
    python recipes/verl/train.py --run runs/guess \\
        --set 'trainer.verl={"actor_rollout_ref.actor.ppo_max_token_len_per_gpu"=32768}'

``gem-core train --trainer verl`` does the same and evaluates before and after.
"""

from __future__ import annotations

import argparse

from gem_core.training.recipe import load_recipe
from gem_core.training.runs import RunDir
from gem_verl.config import translate
from gem_verl.launch import run as train


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", default="guess-the-number-easy")
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--run", help="run directory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--print", action="store_true", help="show verl's overrides and stop")
    args = parser.parse_args()

    recipe = load_recipe(args.baseline, args.profile, args.overrides)
    if args.print:
        print("python -m verl.trainer.main_ppo \\\n " + " \\\n ".join(translate(recipe)))
        return
    if args.run is None:
        parser.error("--run is needed to train")
    if_exists = "resume" if args.resume else "error"
    directory = RunDir.create(args.run, recipe, "verl", if_exists=if_exists)
    # Runs `python -m verl.trainer.main_ppo` with the overrides above. They name gem_verl's dataset
    # of tasks, agent loop, sampler and estimator, which verl imports in its own processes.
    train(recipe, directory, resume=args.resume)
    last = directory.metrics()[-1]
    print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {directory.model}")


if __name__ == "__main__":
    main()
