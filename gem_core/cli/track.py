"""``gem-core track``: send the metrics of a run to experiment trackers."""

from __future__ import annotations

import argparse

from gem_core.errors import RunError, unknown
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.tracking import TRACKERS, send


def track(arguments: argparse.Namespace) -> int:
    """Send what the trackers have not received; the exit code is 1 if one did not take it all."""
    run = RunDir(arguments.run)
    if not run.exists:
        raise RunError(f"{run.path} is not a run directory (it has no recipe.json).")
    names = arguments.to or run.recipe.track.to
    if not names:
        raise RunError("The run's recipe names no tracker: add --to, e.g. --to tensorboard.")
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    project = arguments.project or run.recipe.track.project
    return int(not send(run, names, project, print))
