"""Train a gem-core recipe with RL2; the wiring in the open.

    python recipes/rl2/train.py --run runs/guess                        # tiny, CPU
    python recipes/rl2/train.py --run runs/guess --profile paper --set hardware.engine=sglang
    python recipes/rl2/train.py --print                                 # RL2's own overrides

``gem-core train --trainer rl2`` does the same and evaluates before and after.
"""

from __future__ import annotations

import argparse

from gem_core.training.recipe import load_recipe
from gem_core.training.runs import RunDir
from gem_rl2.config import translate
from gem_rl2.launch import run as train


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", default="guess-the-number-easy")
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--run", help="run directory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--print", action="store_true", help="show RL2's overrides and stop")
    args = parser.parse_args()

    recipe = load_recipe(args.baseline, args.profile, args.overrides)
    if args.print:
        print("\n".join(translate(recipe)))
        return
    if args.run is None:
        parser.error("--run is needed to train")
    if_exists = "resume" if args.resume else "error"
    directory = RunDir.create(args.run, recipe, "rl2", if_exists=if_exists)
    # Starts torchrun with one process per GPU; each runs gem_rl2.launch: RL2's PPOTrainer with the
    # overrides above, gem-core's episodes in its rollout and the recipe's estimator in its loop.
    train(recipe, directory, resume=args.resume)
    last = directory.metrics()[-1]
    print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {directory.model}")


if __name__ == "__main__":
    main()
