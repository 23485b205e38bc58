"""The arguments of every subcommand. Nothing here imports what a subcommand needs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import gem_core
from gem_core.cli.check_options import add_check_options
from gem_core.cli.compare_options import add_compare_options
from gem_core.cli.controls_options import add_controls_options
from gem_core.cli.eval_options import add_eval_options
from gem_core.cli.model_options import add_model_options
from gem_core.cli.serve_options import add_serve_options
from gem_core.cli.values import port, positive

QUICKSTART_TRAINER = "trl"
KINDS = ("environments", "baselines", "profiles", "suite", "trainers", "estimators", "templates")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser; ``verb`` of the parsed arguments is the function, ``module:function``."""
    parser = argparse.ArgumentParser(
        prog="gem-core",
        description="One multi-turn text-environment experiment, five RL trainers.",
        epilog="GEM_CORE_DEBUG=1 prints errors with their tracebacks, as -v does.",
    )
    parser.add_argument("--version", action="version", version=f"gem-core {gem_core.__version__}")
    _add_verbosity(parser)
    verbs = _Verbs(parser.add_subparsers(metavar="COMMAND", required=True).add_parser)
    _browse(verbs)
    _experiment(verbs)
    text = "run a grid of baselines, trainers, algorithms and seeds"
    verb = verbs("compare", "compare:compare", text)
    add_compare_options(verb)
    _add_set(verb)
    _view(verbs)
    _track(verbs)
    _model(verbs)
    verb = verbs("serve", "serve:serve", "serve environments to other programs")
    add_serve_options(verb)
    _add_trust(verb)
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
        _add_verbosity(parser)
        return parser


def _add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Add ``-v`` and ``-q``, before a subcommand and after it."""
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,
        help="also print what libraries say, and the tracebacks of errors",
    )
    how_much.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print results and errors only, no progress",
    )


def _browse(verbs: _Verbs) -> None:
    verb = verbs(
        "list", "browse:list_names", "list environments, baselines, trainers and other names"
    )
    verb.add_argument("pattern", nargs="?", help="part of a name, or a pattern: game:*-easy")
    verb.add_argument(
        "--kind", choices=KINDS, default="environments", help="what to list (default: %(default)s)"
    )
    _add_json(verb)

    verb = verbs("show", "show:show", "show an environment or a baseline")
    verb.add_argument("name", metavar="ENV|BASELINE")
    verb.add_argument(
        "--episodes",
        type=positive,
        default=100,
        help="episodes of each scripted player (default: %(default)s)",
    )
    verb.add_argument("--profile", help="profile that is merged over a baseline")
    verb.add_argument(
        "--model", help="for the template chat: directory or Hugging Face id of the tokenizer"
    )
    _add_json(verb)
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

    verb = verbs("check", "check:check", "check that an environment behaves as trainers need it to")
    add_check_options(verb)
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
    _add_json(verb)
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
    _add_json(verb)
    _add_set(verb)

    verb = verbs("eval", "evaluate:evaluate", "evaluate a model, an endpoint or a player")
    add_eval_options(verb)
    _add_set(verb)

    text = "play what a trained policy must surpass: random, constant, blind, and the model before"
    verb = verbs("controls", "controls:controls", text)
    add_controls_options(verb)
    _add_set(verb)

    _report(verbs)


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
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    _add_json(form)
    verb.add_argument("--record", type=Path, metavar="DIR", help="copy the figures to DIR/<run>")
    _add_trust(verb)

    verb = verbs(
        "quickstart",
        "experiment:quickstart",
        "train a two-layer model on this machine's CPU to guess a number from 1 to 10",
    )
    verb.add_argument(
        "--trainer", default=QUICKSTART_TRAINER, help="name of the trainer (default: %(default)s)"
    )
    _add_set(verb)
    _add_run(verb, "runs/quickstart")


def _view(verbs: _Verbs) -> None:
    verb = verbs("view", "view:view", "show runs and their episodes in a browser, on this machine")
    verb.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="run directories, or directories of runs (default: runs)",
    )
    verb.add_argument("--port", type=port, default=8765, help="port (default: %(default)s)")
    verb.add_argument("--open", action="store_true", help="open the browser")
    verb.add_argument(
        "--export", type=Path, metavar="FILE", help="write one HTML file instead of serving"
    )
    verb.add_argument(
        "--episodes",
        type=positive,
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


def _model(verbs: _Verbs) -> None:
    text = "download a pretrained model from the Python index, and say where it is"
    verb = verbs("model", "model:list_models", text)
    actions = _Verbs(verb.add_subparsers(metavar="ACTION", required=True).add_parser)
    for action in add_model_options(actions):
        _add_json(action)


def _add_json(verb: argparse._ActionsContainer) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON, and nothing else on stdout")


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
