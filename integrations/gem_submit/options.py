"""The arguments of ``gem-core submit``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command
from gem_core.cli.options import add_set
from gem_core.cli.values import positive
from gem_submit.resources import read_memory, read_name, read_option, read_time

CLUSTERS = ("slurm", "local", "debug")


def add_submit_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "baselines", nargs="*", metavar="BASELINE|FILE", help="shipped baselines, or recipe files"
    )
    verb.add_argument("--trainers", nargs="+", metavar="NAME", help="trainers of the grid")
    verb.add_argument(
        "--seeds", nargs="+", type=int, metavar="N", help="seeds (default: that of the recipe)"
    )
    verb.add_argument("--profile", help="profile that is merged over every recipe")
    add_set(verb)
    verb.add_argument(
        "--out",
        type=Path,
        default=Path("runs/submit"),
        metavar="FOLDER",
        help="folder of the grid, which every node sees (default: %(default)s)",
    )
    verb.add_argument(
        "--retry-failed", action="store_true", help="submit cells again whose training failed"
    )
    _add_cluster_options(verb)
    modes = verb.add_mutually_exclusive_group()
    modes.add_argument(
        "--dry-run",
        action="store_true",
        help="print each cell's command and what sbatch is asked for, submit nothing",
    )
    modes.add_argument(
        "--wait", action="store_true", help="wait for all cells; exit code 1 if one has no result"
    )
    modes.add_argument(
        "--status", type=Path, metavar="FOLDER", help="print what became of the cells in FOLDER"
    )


def _add_cluster_options(verb: argparse.ArgumentParser) -> None:
    """Add what each job asks of the cluster."""
    verb.add_argument(
        "--cluster",
        choices=CLUSTERS,
        default="slurm",
        help="slurm; local: processes of this machine; debug: in this process (default: slurm)",
    )
    verb.add_argument("--partition", type=read_name, metavar="NAME", help="partition of Slurm")
    verb.add_argument(
        "--time",
        type=read_time,
        metavar="TIME",
        help="time limit of a job, as sbatch has it: 90 (minutes), 24:00:00, 2-12",
    )
    verb.add_argument(
        "--gpus",
        type=positive,
        metavar="N",
        help="GPUs of a cell (default: hardware.gpus_per_node of its recipe)",
    )
    verb.add_argument("--cpus", type=positive, metavar="N", help="CPUs of a cell")
    verb.add_argument("--mem", type=read_memory, metavar="SIZE", help="memory of a cell, as 64G")
    verb.add_argument(
        "--slurm",
        action="append",
        type=read_option,
        default=[],
        metavar="KEY[=VALUE]",
        help="another long option of sbatch, as account=NAME or exclusive; may be repeated",
    )
    verb.add_argument(
        "--at-most", type=positive, metavar="N", help="cells at a time (local: 1 if not given)"
    )
    verb.add_argument(
        "--notice",
        type=positive,
        metavar="SECONDS",
        help="how long before the time limit a cell is told to save and end "
        "(default: a fifth of --time, at most 600)",
    )
    verb.add_argument(
        "--restarts",
        type=int,
        default=3,
        metavar="N",
        help="how often a cell that reached its time limit goes on in the queue (default: 3)",
    )


COMMAND = Command(
    "train a grid of recipes, trainers and seeds as jobs of Slurm",
    "gem_submit.command:submit",
    add_submit_options,
)
