"""Train a gem-core recipe with OpenRLHF.

    python recipes/openrlhf/train.py --run runs/guess                      # tiny, CPU
    python recipes/openrlhf/train.py --run runs/guess-async \\
        --set trainer.openrlhf.train.async_enable=true                     # async mode
    python recipes/openrlhf/train.py --run runs/guess --profile paper      # GPUs

``gem-core train --trainer openrlhf`` does the same and evaluates before and after. The wiring is in
`gem_openrlhf`: the recipe in OpenRLHF's flags (`config.flags`), the flags of a run
(`launch.run_flags`), and OpenRLHF's actors with gem_core's episodes and estimator
(`actors.installed`).
"""

from __future__ import annotations

import argparse

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.experiment import training
from gem_openrlhf import config, launch
from gem_openrlhf.command_line import check_arguments


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
    # Locks the run, and has all processes read the same data; SIGTERM saves and ends it.
    with training(args.run, recipe, "openrlhf", resume=args.resume) as run:
        launch.run(recipe, run, resume=args.resume)
    last = run.metrics()[-1]
    print(f"step {last['step']}: success {last['success/mean']:.3f}, model in {run.model}")


if __name__ == "__main__":
    main()
