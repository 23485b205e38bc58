"""Play the controls of the suite's baselines: ``python benchmarks/suite/controls.py``.

Writes ``controls/<baseline>/seed<seed>.json``, what `gem-core controls` writes, for each baseline
of the suite in the tiny profile. With ``--players-only`` the two controls that are the model before
training are left out; without it, the environment needs transformers (``.venvs/trl``). A file that
is there is kept, unless it lacks a control that is asked for.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from gem_core.errors import RunError
from gem_core.evaluation.controls.file import CONTROLS, FILE, PLAYERS, read_controls
from gem_core.evaluation.controls.play import play_controls, read_trained
from gem_core.evaluation.progress import no_progress
from gem_core.runs import provenance
from gem_core.runs.recipe.suite import load_suite
from gem_core.training.tiny import model_path

OUT = Path(__file__).resolve().parent / "controls"


def main() -> None:
    """Play what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [baseline.name for baseline in load_suite()]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="BASELINE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="(%(default)s)")
    parser.add_argument("--players-only", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=OUT, help="directory of the results")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    wanted = PLAYERS if arguments.players_only else CONTROLS
    for seed in arguments.seeds:
        for name in arguments.only:
            target = arguments.out / name / f"seed{seed}.json"
            if not has(target, wanted):
                overrides = [*arguments.overrides, f"seed={seed}"]
                print(name, seed, play(name, overrides, target, arguments.players_only), flush=True)


def has(target: Path, wanted: tuple[str, ...]) -> bool:
    """Return whether a file has the controls that are asked for."""
    try:
        return set(wanted) <= set(read_controls(target).outcomes)
    except RunError:
        return False


def play(name: str, overrides: list[str], target: Path, players_only: bool) -> dict[str, float]:
    """Play the controls of one baseline and keep their file; return their success."""
    trained = read_trained(name, "tiny", overrides)
    start = None if players_only else model_path(trained.recipe)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        controls = play_controls(trained, start, out, progress=no_progress)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / FILE, target)
    return controls.success


if __name__ == "__main__":
    main()
