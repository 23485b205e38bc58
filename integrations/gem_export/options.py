"""The arguments of ``gem-core export``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.commands import Command


def add_export_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="run directories")
    verb.add_argument(
        "--to", required=True, type=Path, metavar="FILE", help="the new file, such as all.parquet"
    )
    verb.add_argument("--split", choices=("train", "eval"), help="these only (default: all)")
    verb.add_argument("--overwrite", action="store_true", help="replace an existing file")


COMMAND = Command(
    "write the sampled episodes of runs as one Parquet file",
    "gem_export.command:export",
    add_export_options,
)
