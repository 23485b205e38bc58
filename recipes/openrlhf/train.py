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

from gem_core.runs.resolved import read_resolved
from gem_core.training.experiment import training
from gem_core.training.script import describe_end, read_command_line
from gem_openrlhf import config, launch
from gem_openrlhf.command_line import check_arguments


def main() -> None:
    """Parse the command line, resolve the recipe, train."""
    call = read_command_line(__doc__)
    check_arguments(config.translate(call.recipe))  # errors before there is a directory
    # Locks the run, and has all processes read the same data; SIGTERM saves and ends it.
    with training(call.run, call.recipe, "openrlhf", resume=call.resume) as run:
        launch.run(read_resolved(run), run, resume=call.resume)
    print(describe_end(run))


if __name__ == "__main__":
    main()
