"""Start a trainer on a resolved run."""

from __future__ import annotations

from gem_core.runs import trainers
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import ResolvedRun


def launch(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what `gem_core.runs.resolved.resolve_run` made, into ``run``."""
    trainers.resolve(resolved.trainer.launch)(resolved, run, resume=resume)
