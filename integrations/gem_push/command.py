"""``gem-core push``: the model, its card and its episodes to the Hugging Face Hub."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from gem_core.cli.output import print_json, progress_lines
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_push.evidence import Measurements, read_evidence
from gem_push.folder import write_folder
from gem_push.hub import upload

_REPO = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", re.ASCII)


def push(arguments: argparse.Namespace) -> int:
    """Write the folder of a run, and upload it unless it is a dry run.

    Raises:
        GemError: the name of the repository is none, the Hub refuses, or the run did not finish.
    """
    if not _REPO.fullmatch(arguments.repo):
        raise GemError(f"{arguments.repo!r} is no name of a repository: write it as OWNER/NAME.")
    run = RunDir(arguments.run)
    evidence = read_evidence(run, arguments.controls, arguments.lockstep)
    say = progress_lines() if not arguments.json else (lambda line: None)
    if arguments.dry_run is not None:
        _require_new(arguments.dry_run)
        left_out = _write(run, arguments, evidence, arguments.dry_run)
        place = str(arguments.dry_run)
    else:
        with TemporaryDirectory(prefix="gem-core-push-") as name:
            left_out = _write(run, arguments, evidence, Path(name))
            place = upload(Path(name), arguments.repo, arguments.private)
    for line in left_out:
        say(f"left out: {line}")
    if arguments.json:
        print_json(arguments, {"place": place, "left_out": left_out})
    else:
        print(place)
    return 0


def _write(
    run: RunDir, arguments: argparse.Namespace, evidence: Measurements, folder: Path
) -> list[str]:
    return write_folder(run, folder, arguments.repo, evidence, not arguments.no_episodes)


def _require_new(folder: Path) -> None:
    """Raise GemError where something of this name exists that is not an empty folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise GemError(f"{folder} exists and is no folder: choose another one for --dry-run.")
    if folder.is_dir() and any(folder.iterdir()):
        raise GemError(f"{folder} is not empty: choose another one for --dry-run.")
    folder.mkdir(parents=True, exist_ok=True)
