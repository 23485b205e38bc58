"""Studies of one question each, with several seeds: tools, discount, generalisation.

    python benchmarks/studies/run.py                  # first run what is missing
    python benchmarks/studies/run.py --studies gamma  # of one study
    python benchmarks/studies/run.py --table-only     # from the committed results

`studies.toml` says what is trained and by which trainer; a run goes in that trainer's environment.
`page.py` writes the page from the results.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from page import write_page

from gem_compare.runner import trainer_python
from gem_core.errors import GemError
from gem_core.results import record
from gem_core.runs import provenance
from gem_core.runs.directory.run_dir import RunDir

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SEEDS = (0, 1, 2)


class Condition(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a study: a recipe (a baseline, or a file of ``recipes/``) and what differs."""

    recipe: str
    set: list[str] = []
    trainer: str = "trl"
    seeds: tuple[int, ...] = SEEDS
    """Those that are run; `--seeds` leaves out others."""


class Study(msgspec.Struct, forbid_unknown_fields=True):
    """A question and its conditions."""

    title: str
    text: str
    condition: dict[str, Condition]
    profile: str = "tiny"
    """That of every condition's recipe."""
    found: str = ""
    """What the committed results show, and what they do not."""
    metric: str = "success/mean"
    """The figure of the evaluation that the page shows, beside the success."""
    pairs: list[tuple[str, str]] = []
    """Conditions whose success after training is compared on the seeds that both have."""

    def __post_init__(self) -> None:
        """Refuse a pair of conditions that there are not."""
        unknown = {name for pair in self.pairs for name in pair} - set(self.condition)
        if unknown:
            raise ValueError(f"{self.title}: pairs has no condition {', '.join(sorted(unknown))}.")


class Studies(msgspec.Struct, forbid_unknown_fields=True):
    """All of ``studies.toml``."""

    study: dict[str, Study]


def main() -> int:
    """Run what is missing, unless only the page is asked for, and write the page."""
    studies = read_studies()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", nargs="+", choices=studies, default=list(studies))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="(%(default)s)")
    parser.add_argument("--record", type=Path, default=RESULTS, help="directory of the results")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if not arguments.table_only:
        provenance.check_option(parser, arguments)
        for seed in arguments.seeds:
            for name in arguments.studies:
                for text, condition in studies[name].condition.items():
                    if seed in condition.seeds:
                        target = arguments.record / name / slug(text) / f"seed{seed}"
                        train(condition, studies[name].profile, seed, target)
    write_page(HERE / "README.md", pages(studies, arguments.record))
    return 0


def read_studies() -> dict[str, Study]:
    """Return all studies, by name."""
    return msgspec.toml.decode((HERE / "studies.toml").read_bytes(), type=Studies).study


def slug(text: str) -> str:
    """Return a condition's name as the name of a folder.

    >>> slug("gamma 0.9")
    'gamma-0.9'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def train(condition: Condition, profile: str, seed: int, target: Path) -> None:
    """Run one cell, unless it has a result, and record its figures."""
    if RunDir(target).finished:
        return
    print(f"==> {target.parent.parent.name}, {target.parent.name}, seed {seed}", flush=True)
    file = HERE / "recipes" / f"{condition.recipe}.toml"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        recipe = str(file) if file.exists() else condition.recipe
        command = [trainer_python(condition.trainer), "-m", "gem_core.cli", "train", recipe]
        command += ["--profile", profile, "--trainer", condition.trainer, "--run", str(run)]
        for change in (*condition.set, f"seed={seed}"):
            command += ["--set", change]
        subprocess.run(command, check=True)
        record(RunDir(run), target)


def pages(
    studies: dict[str, Study], results: Path
) -> Iterator[tuple[Study, dict[str, list[RunDir]]]]:
    """Yield each study with the finished runs of its conditions, by seed."""
    for name, study in studies.items():
        runs = {}
        for text in study.condition:
            paths = sorted((results / name / slug(text)).glob("seed*"))
            runs[text] = [run for run in map(RunDir, paths) if run.finished]
        yield study, runs


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GemError as error:
        sys.exit(f"run.py: {error}")
