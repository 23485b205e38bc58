"""Train a gem-core recipe with Oat; the wiring in the open.

    python recipes/oat/train.py --run runs/guess                        # tiny, CPU
    python recipes/oat/train.py --run runs/guess --profile paper \\
        --set hardware.gpus_per_node=8                                  # GPUs, Python 3.10

``gem-core train --trainer oat`` does the same and evaluates before and after.
"""

from __future__ import annotations

import argparse

from gem_core.training.recipe import load_recipe
from gem_core.training.runs import RunDir
from gem_oat.launch import run as train


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
    directory = RunDir.create(
        args.run, recipe, "oat", if_exists="resume" if args.resume else "error"
    )
    # Oat's arguments (gem_oat.config), then Oat's program of actors and learners: gem_oat.rollout's
    # GemActor plays the episodes, gem_oat.learner's GemLearner runs Oat's loop on their turns. On a
    # CPU both run in this process.
    train(recipe, directory, resume=args.resume)
    last = directory.metrics()[-1]
    print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {directory.model}")


if __name__ == "__main__":
    main()
