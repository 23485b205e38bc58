"""The arguments of every subcommand. Nothing here imports what a subcommand needs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from gem_core.cli.eval_options import add_eval_options

KINDS = ("environments", "baselines", "profiles", "suite", "trainers", "estimators", "templates")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser; ``verb`` of the parsed arguments is the function, ``module:function``."""
    parser = argparse.ArgumentParser(
        prog="gem-core",
        description="One multi-turn text-environment experiment, five RL trainers.",
    )
    verbs = _Verbs(parser.add_subparsers(metavar="COMMAND", required=True).add_parser)
    _browse(verbs)
    _experiment(verbs)
    _report(verbs)
    _compare(verbs)
    _view(verbs)
    _track(verbs)
    _serve(verbs)
    return parser


class _Verbs:
    """Adds subcommands to the parser."""

    def __init__(self, add_parser: Callable[..., argparse.ArgumentParser]) -> None:
        self.add_parser = add_parser

    def __call__(self, name: str, run: str, text: str) -> argparse.ArgumentParser:
        """Add the subcommand ``name``; ``run`` is ``module:function`` in this package."""
        description = f"{text[0].upper()}{text[1:]}."
        parser = self.add_parser(name, help=text, description=description)
        parser.set_defaults(verb=f"gem_core.cli.{run}")
        return parser


def _browse(verbs: _Verbs) -> None:
    verb = verbs(
        "list", "browse:list_names", "list environments, baselines, trainers and other names"
    )
    verb.add_argument("pattern", nargs="?", help="part of a name, or a pattern: game:*-easy")
    verb.add_argument(
        "--kind", choices=KINDS, default="environments", help="what to list (default: %(default)s)"
    )

    verb = verbs("show", "browse:show", "show an environment or a baseline")
    verb.add_argument("name", metavar="ENV|BASELINE")
    verb.add_argument(
        "--episodes",
        type=int,
        default=100,
        help="episodes of each scripted player (default: %(default)s)",
    )
    verb.add_argument("--profile", help="profile that is merged over a baseline")
    _add_set(verb)

    verb = verbs("play", "play:play", "play an environment in the terminal")
    verb.add_argument("env", metavar="ENV")
    verb.add_argument(
        "--player",
        choices=("person", "random", "expert"),
        default="person",
        help="who plays (default: %(default)s)",
    )
    verb.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    verb.add_argument(
        "--raw", action="store_true", help="send lines unchanged, without the answer format"
    )
    verb.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")

    _doctor(verbs)


def _doctor(verbs: _Verbs) -> None:
    verb = verbs("doctor", "doctor:doctor", "check whether a run could start here; what is missing")
    verb.add_argument(
        "--trainer",
        nargs="+",
        metavar="NAME",
        help="check only these; exit code 1 unless all are ready (default: those installed here)",
    )
    verb.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        help="where the run is to train (default: on a GPU if there is one)",
    )
    verb.add_argument("--recipe", metavar="BASELINE|FILE", help="also check that this could start")
    verb.add_argument("--profile", help="profile of the recipe: tiny, small, paper, or a TOML file")
    verb.add_argument(
        "--gpus", metavar="NxGB", help="GPUs to reckon with for the recipe: 8x80 = 8 of 80 GB"
    )
    verb.add_argument("--run", type=Path, metavar="DIR", help="where the run would be written")
    verb.add_argument("--json", action="store_true", help="print JSON")
    _add_set(verb)


def _experiment(verbs: _Verbs) -> None:
    verb = verbs("train", "experiment:train", "train a recipe, and evaluate before and after")
    verb.add_argument(
        "baseline", nargs="?", metavar="BASELINE|FILE", help="a shipped baseline or a TOML file"
    )
    verb.add_argument("--trainer", required=True, help="name of the trainer")
    verb.add_argument(
        "--from",
        type=Path,
        dest="origin",
        metavar="RUN",
        help="continue from the model of this run, with its recipe or the named baseline",
    )
    verb.add_argument("--profile", help="tiny (for CPUs), paper (for GPUs), or a TOML file")
    _add_set(verb)
    _add_run(verb, "runs/<recipe>-<trainer>-seed<seed>")

    verb = verbs("plan", "plan:plan", "compute whether a recipe fits into the memory of GPUs")
    verb.add_argument("baseline", metavar="BASELINE|FILE", help="a shipped baseline or a TOML file")
    verb.add_argument("--trainer", required=True, help="name of the trainer")
    verb.add_argument(
        "--gpus", required=True, metavar="NxGB", help="GPUs of one machine: 8x80 = 8 of 80 GB"
    )
    verb.add_argument("--profile", help="tiny (for CPUs), paper (for GPUs), or a TOML file")
    _add_set(verb)

    verb = verbs("eval", "evaluate:evaluate", "evaluate a model, an endpoint or a player")
    add_eval_options(verb)
    _add_set(verb)

    verb = verbs(
        "quickstart",
        "experiment:quickstart",
        "train a two-layer model on this machine's CPU to guess a number from 1 to 10",
    )
    verb.add_argument("--trainer", default="trl", help="name of the trainer (default: %(default)s)")
    _add_set(verb)
    _add_run(verb, "runs/quickstart")


def _report(verbs: _Verbs) -> None:
    verb = verbs(
        "report", "experiment:report", "print a table of runs and draw their learning curves"
    )
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    verb.add_argument(
        "--png", type=Path, help="the plot (default: learning-curve.png in the first run)"
    )
    verb.add_argument(
        "--metric", default="success/mean", help="the metric to draw (default: %(default)s)"
    )
    verb.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    verb.add_argument("--record", type=Path, metavar="DIR", help="copy the figures to DIR/<run>")
    _add_trust(verb)


def _compare(verbs: _Verbs) -> None:
    verb = verbs(
        "compare", "compare:compare", "run a grid of baselines, trainers, algorithms and seeds"
    )
    baselines = verb.add_mutually_exclusive_group()
    baselines.add_argument(
        "--baselines",
        nargs="+",
        default=["guess-the-number-easy"],
        metavar="NAME",
        help="baselines: names or files (default: guess-the-number-easy)",
    )
    baselines.add_argument(
        "--suite", action="store_true", help="all baselines of the suite (gem-core list)"
    )
    verb.add_argument("--trainers", nargs="+", metavar="NAME", help="trainers (default: all)")
    verb.add_argument(
        "--algorithms",
        nargs="+",
        default=["rebn"],
        metavar="NAME",
        help="algorithms (default: rebn)",
    )
    verb.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0],
        metavar="N",
        help="seeds of the runs (default: 0)",
    )
    verb.add_argument("--profile", default="tiny", help="profile (default: %(default)s)")
    _add_grid_options(verb)
    _add_set(verb)


def _view(verbs: _Verbs) -> None:
    verb = verbs("view", "view:view", "show runs and their episodes in a browser, on this machine")
    verb.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="run directories, or directories of runs (default: runs)",
    )
    verb.add_argument("--port", type=int, default=8765, help="port (default: %(default)s)")
    verb.add_argument("--open", action="store_true", help="open the browser")
    verb.add_argument(
        "--export", type=Path, metavar="FILE", help="write one HTML file instead of serving"
    )
    verb.add_argument(
        "--episodes",
        type=int,
        default=200,
        help="episodes of each run in an exported file, the last ones (default: %(default)s)",
    )
    _add_trust(verb)


def _track(verbs: _Verbs) -> None:
    verb = verbs("track", "track:track", "send the metrics of a run to experiment trackers")
    verb.add_argument("run", type=Path, metavar="RUN", help="run directory")
    verb.add_argument(
        "--to",
        nargs="+",
        metavar="TRACKER",
        help="tensorboard, wandb, mlflow, trackio (default: track.to of the run's recipe)",
    )
    verb.add_argument("--project", help="project (default: track.project of the run's recipe)")
    _add_trust(verb)


def _serve(verbs: _Verbs) -> None:
    verb = verbs("serve", "serve:serve", "serve environments to other programs")
    verb.add_argument(
        "--mcp",
        action="store_true",
        help="by the Model Context Protocol, on standard input or, with --port, by streamable HTTP",
    )
    verb.add_argument("--port", type=int, help="port (default: 8000; with --mcp standard input)")
    verb.add_argument(
        "--host",
        default="127.0.0.1",
        help="address; another than the default needs a token in GEM_CORE_SERVER_TOKEN",
    )
    verb.add_argument(
        "--environments",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="which environments, such as game:* (default: all)",
    )
    _add_client_limits(verb)


def _add_client_limits(verb: argparse.ArgumentParser) -> None:
    """Add what clients of a server may use."""
    verb.add_argument(
        "--sessions", type=int, help="sessions at once (default: 2048; with --mcp 64)"
    )
    verb.add_argument(
        "--message-bytes",
        type=int,
        default=1 << 20,
        help="size of a client's message (default: %(default)s)",
    )
    verb.add_argument(
        "--memory-mb",
        type=float,
        default=4096.0,
        help="memory of the server from which on it opens no session (default: %(default)g)",
    )
    verb.add_argument(
        "--idle",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="a session without a call for so long may be closed (default: %(default)s)",
    )
    verb.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wall time of a call (default: %(default)s)",
    )
    verb.add_argument(
        "--parameters",
        action="store_true",
        help="let clients set the parameters that environments declare (gem-core show ENV)",
    )
    verb.add_argument(
        "--recipe",
        action="append",
        default=[],
        metavar="BASELINE|FILE",
        help="also let clients set just the values that this recipe of yours gives its "
        "environments; may be repeated",
    )
    _add_trust(verb)


def _add_grid_options(verb: argparse.ArgumentParser) -> None:
    """Add where and how the cells of a comparison are run."""
    verb.add_argument(
        "--out",
        type=Path,
        help="directory of the comparison (default: runs/compare; for --quick runs/compare-quick, "
        "for --lockstep runs/lockstep)",
    )
    verb.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="copy the figures of every finished cell to DIR; a cell that is there is done",
    )
    verb.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="limit of each cell's training time, without start, evaluation and pauses "
        "(default: none)",
    )
    verb.add_argument(
        "--idle",
        type=float,
        metavar="SECONDS",
        help="end a cell that writes nothing for so long (default: never)",
    )
    verb.add_argument("--retry-failed", action="store_true", help="run failed cells again")
    verb.add_argument(
        "--retry-stale", action="store_true", help="replace finished cells of another recipe"
    )
    modes = verb.add_mutually_exclusive_group()
    modes.add_argument(
        "--quick", action="store_true", help="3 steps of the first baseline, small evaluations"
    )
    modes.add_argument(
        "--lockstep",
        action="store_true",
        help="runs that are compared token by token: where do two trainers part first?",
    )
    verb.add_argument(
        "--steps", type=int, metavar="N", help="training steps of --lockstep (default: 20)"
    )
    verb.add_argument(
        "--allow-dirty",
        action="store_true",
        help="also with uncommitted changes; the results are marked with a + behind the commit",
    )
    verb.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    verb.add_argument(
        "--report-only", action="store_true", help="only write the report of finished cells"
    )


def _add_trust(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--trust",
        action="store_true",
        help="let the recipes and runs name code outside of installed plugins, start programs and "
        "weaken the sandbox: for those whose author you know (SECURITY.md)",
    )


def _add_set(verb: argparse.ArgumentParser) -> None:
    _add_trust(verb)
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a key of the recipe; may be repeated (docs/recipes.md lists all)",
    )


def _add_run(verb: argparse.ArgumentParser, default: str) -> None:
    verb.add_argument("--run", type=Path, metavar="DIR", help=f"run directory (default: {default})")
    existing = verb.add_mutually_exclusive_group()
    existing.add_argument(
        "--resume", action="store_true", help="continue a run from its last checkpoint"
    )
    existing.add_argument("--overwrite", action="store_true", help="delete an existing run first")
