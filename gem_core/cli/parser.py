"""The arguments of the core's subcommands. Nothing here imports what a subcommand needs."""

from __future__ import annotations

import argparse
from pathlib import Path

import gem_core
from gem_core.cli.check_options import add_check_options
from gem_core.cli.commands import load_commands
from gem_core.cli.controls_options import add_controls_options
from gem_core.cli.eval_options import add_eval_options
from gem_core.cli.options import Verbs, add_json, add_set, add_trust, add_verbosity
from gem_core.cli.values import positive

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
    add_verbosity(parser)
    add_parser = parser.add_subparsers(metavar="COMMAND", required=True).add_parser
    verbs = Verbs(add_parser, "gem_core.cli.")
    _browse(verbs)
    _experiment(verbs)
    _track(verbs)
    others = Verbs(add_parser)
    for name, command in load_commands(verbs.parsers).items():
        command.add_options(others(name, command.run, command.text))
        for extended in command.extends.keys() & verbs.parsers.keys():
            command.extends[extended](verbs.parsers[extended])
    return parser


def _browse(verbs: Verbs) -> None:
    verb = verbs(
        "list", "browse:list_names", "list environments, baselines, trainers and other names"
    )
    verb.add_argument("pattern", nargs="?", help="part of a name, or a pattern: game:*-easy")
    verb.add_argument(
        "--kind", choices=KINDS, default="environments", help="what to list (default: %(default)s)"
    )
    add_json(verb)

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
    add_json(verb)
    add_set(verb)

    verb = verbs("play", "play:play", "play an environment in the terminal")
    verb.add_argument("env", metavar="ENV", help="an id, or module:Class")
    verb.add_argument(
        "--player",
        default="person",
        metavar="NAME",
        help="who plays: person, random, expert, or another scripted player of the environment "
        "(default: %(default)s)",
    )
    verb.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    verb.add_argument(
        "--raw", action="store_true", help="send lines unchanged, without the answer format"
    )
    verb.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")

    verb = verbs("check", "check:check", "check that an environment behaves as trainers need it to")
    add_check_options(verb)


def _experiment(verbs: Verbs) -> None:
    verb = verbs("train", "experiment:train", "train a recipe, and evaluate before and after")
    verb.add_argument(
        "baseline",
        nargs="?",
        metavar="BASELINE|FILE",
        help="a shipped baseline or a file (TOML, YAML)",
    )
    verb.add_argument("--trainer", required=True, help="name of the trainer")
    verb.add_argument(
        "--from",
        type=Path,
        dest="origin",
        metavar="RUN",
        help="continue from the model of this run, with its recipe or the named baseline",
    )
    verb.add_argument("--profile", help="tiny, learn (CPUs), paper (GPUs), or a file (TOML, YAML)")
    add_set(verb)
    _add_run(verb, "runs/<recipe>-<trainer>-seed<seed>")

    verb = verbs("eval", "evaluate:evaluate", "evaluate a model, an endpoint or a player")
    add_eval_options(verb)
    add_set(verb)

    text = "play what a trained policy must surpass: random, constant, blind, and the model before"
    verb = verbs("controls", "controls:controls", text)
    add_controls_options(verb)
    add_set(verb)

    _report(verbs)


def _report(verbs: Verbs) -> None:
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
    add_json(form)
    verb.add_argument("--record", type=Path, metavar="DIR", help="copy the figures to DIR/<run>")
    add_trust(verb)

    verb = verbs(
        "quickstart",
        "experiment:quickstart",
        "train a two-layer model on this machine's CPU to push a box in small rooms of Sokoban",
    )
    verb.add_argument(
        "--trainer", default=QUICKSTART_TRAINER, help="name of the trainer (default: %(default)s)"
    )
    add_set(verb)
    _add_run(verb, "runs/quickstart")


def _track(verbs: Verbs) -> None:
    verb = verbs("track", "track:track", "send the metrics of a run to experiment trackers")
    verb.add_argument("run", type=Path, metavar="RUN", help="run directory")
    verb.add_argument(
        "--to",
        nargs="+",
        metavar="TRACKER",
        help="tensorboard, wandb, mlflow, trackio (default: track.to of the run's recipe)",
    )
    verb.add_argument("--project", help="project (default: track.project of the run's recipe)")
    add_trust(verb)


def _add_run(verb: argparse.ArgumentParser, default: str) -> None:
    verb.add_argument("--run", type=Path, metavar="DIR", help=f"run directory (default: {default})")
    existing = verb.add_mutually_exclusive_group()
    existing.add_argument(
        "--resume", action="store_true", help="continue a run from its last checkpoint"
    )
    existing.add_argument("--overwrite", action="store_true", help="delete an existing run first")
