"""Train a gem-core recipe with OpenRLHF; the wiring in the open.

    python recipes/openrlhf/train.py --run runs/guess                      # tiny, CPU
    python recipes/openrlhf/train.py --run runs/guess-async \\
        --set trainer.openrlhf.train.async_enable=true                     # async mode
    python recipes/openrlhf/train.py --run runs/guess --profile paper      # GPUs

``gem-core train --trainer openrlhf`` does the same and evaluates before and after.
"""

from __future__ import annotations

import argparse

from gem_core.training.recipe import load_recipe
from gem_core.training.runs import RunDir
from gem_openrlhf.launch import run as train


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
        args.run, recipe, "openrlhf", if_exists="resume" if args.resume else "error"
    )
    # Writes the prompt rows, starts Ray, puts gem_core's estimators into OpenRLHF's trainer actor
    # and runs `openrlhf.cli.train_ppo_ray` with the flags of gem_openrlhf.config.translate(recipe).
    train(recipe, directory, resume=args.resume)
    last = directory.metrics()[-1]
    print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {directory.model}")


if __name__ == "__main__":
    main()
