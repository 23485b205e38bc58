"""The arguments of ``gem-core controls``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.values import positive


def add_controls_options(verb: argparse.ArgumentParser) -> None:
    """Add them, except ``--set``."""
    verb.add_argument(
        "source",
        metavar="RUN|BASELINE|FILE",
        help="a run directory, a baseline or a file (TOML, YAML)",
    )
    verb.add_argument("--profile", help="profile that is merged over a baseline")
    verb.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="keep each control's evaluation here, and controls.json",
    )
    verb.add_argument(
        "--episodes",
        type=positive,
        metavar="N",
        help="evaluation tasks (default: eval.episodes of the recipe)",
    )
    verb.add_argument(
        "-n",
        "--samples",
        type=positive,
        default=1,
        metavar="N",
        help="samples of each task, of the random player and the sampled model "
        "(default: %(default)s)",
    )
    verb.add_argument(
        "--players-only", action="store_true", help="leave out the model before training"
    )
    existing = verb.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="continue what is in --out")
    existing.add_argument("--overwrite", action="store_true", help="delete it first")
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    form.add_argument("--json", action="store_true", help="print controls.json")
