"""The arguments of every verb; nothing here imports what a verb needs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

KINDS = ("environments", "baselines", "profiles", "trainers", "estimators", "templates")


def build_parser() -> argparse.ArgumentParser:
    """The parser; ``verb`` of the parsed arguments names the function ``module:function``."""
    parser = argparse.ArgumentParser(
        prog="gem-core",
        description="One multi-turn text-environment experiment, five RL trainers.",
    )
    verbs = _Verbs(parser.add_subparsers(metavar="VERB", required=True).add_parser)
    _browse(verbs)
    _experiment(verbs)
    _compare(verbs)
    return parser


class _Verbs:
    """Adds verbs to the parser."""

    def __init__(self, add_parser: Callable[..., argparse.ArgumentParser]) -> None:
        self.add_parser = add_parser

    def __call__(self, name: str, run: str, text: str) -> argparse.ArgumentParser:
        """Add the verb ``name``: ``run`` is ``module:function`` below this package."""
        description = f"{text[0].upper()}{text[1:]}."
        parser = self.add_parser(name, help=text, description=description)
        parser.set_defaults(verb=f"gem_core.cli.{run}")
        return parser


def _browse(verbs: _Verbs) -> None:
    verb = verbs("list", "browse:list_names", "list what can be named on this command line")
    verb.add_argument("pattern", nargs="?", help="part of a name, or game:*-easy")
    verb.add_argument("--kind", choices=KINDS, default="environments", help="(%(default)s)")

    verb = verbs("show", "browse:show", "show an environment or a baseline")
    verb.add_argument("name", metavar="ENV|BASELINE")
    verb.add_argument("--episodes", type=int, default=100, help="per scripted player (%(default)s)")
    verb.add_argument("--profile", help="profile laid over a baseline")
    _add_set(verb)

    verb = verbs("play", "play:play", "play an environment in the terminal")
    verb.add_argument("env", metavar="ENV")
    verb.add_argument("--player", choices=("person", "random", "expert"), default="person")
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--raw", action="store_true", help="send lines as they are typed")

    verb = verbs("doctor", "doctor:doctor", "tell which trainers can run here, what is missing")
    verb.add_argument("--trainer", help="only this one; exit code 1 if it cannot run")


def _experiment(verbs: _Verbs) -> None:
    verb = verbs("train", "experiment:train", "train a recipe, evaluate before and after")
    verb.add_argument("baseline", nargs="?", metavar="BASELINE|FILE")
    verb.add_argument("--trainer", required=True)
    verb.add_argument(
        "--from",
        type=Path,
        dest="origin",
        metavar="RUN",
        help="start from this run's model and go on with its recipe (or the one that is named)",
    )
    verb.add_argument("--profile", help="tiny (CPU), paper (GPU), or a TOML file")
    _add_set(verb)
    _add_run(verb, "(runs/<recipe>-<trainer>-seed<seed>)")

    verb = verbs("eval", "experiment:evaluate", "evaluate a model on held-out episodes")
    verb.add_argument("source", metavar="RUN|BASELINE|FILE", help="a run directory or a recipe")
    verb.add_argument("--model", help="Hugging Face directory or id (the run's or recipe's own)")
    verb.add_argument("--profile", help="profile of a recipe")
    verb.add_argument("--episodes", type=int, help="(eval.episodes of the recipe)")
    verb.add_argument("--json", action="store_true", help="print the metrics as JSON")
    _add_set(verb)

    verb = verbs("report", "experiment:report", "tabulate runs, draw their learning curves")
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    verb.add_argument("--png", type=Path, help="picture (learning-curve.png in the first run)")
    verb.add_argument("--metric", default="success/mean", help="(%(default)s)")
    verb.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    verb.add_argument("--record", type=Path, metavar="DIR", help="keep the figures in DIR/<run>")

    verb = verbs(
        "quickstart",
        "experiment:quickstart",
        "train a two-layer model on this machine's CPU: guess a number from 1 to 10",
    )
    verb.add_argument("--trainer", default="trl", help="(%(default)s)")
    _add_set(verb)
    _add_run(verb, "(runs/quickstart)")


def _compare(verbs: _Verbs) -> None:
    verb = verbs(
        "compare", "compare:compare", "run baselines x trainers x algorithms x seeds, tabulate them"
    )
    verb.add_argument("--baselines", nargs="+", default=["guess-the-number-easy"], metavar="NAME")
    verb.add_argument("--trainers", nargs="+", metavar="NAME", help="(all)")
    verb.add_argument("--algorithms", nargs="+", default=["rebn"], metavar="NAME")
    verb.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    verb.add_argument("--profile", default="tiny", help="(%(default)s)")
    verb.add_argument("--out", type=Path, default=Path("runs/compare"), help="(%(default)s)")
    verb.add_argument("--budget", type=float, metavar="SECONDS", help="bound on each cell")
    verb.add_argument("--retry-failed", action="store_true", help="run failed cells again")
    verb.add_argument(
        "--quick", action="store_true", help="2 steps of 1 baseline, small evaluation"
    )
    verb.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    verb.add_argument("--report-only", action="store_true", help="only read what is there")
    _add_set(verb)


def _add_set(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a key of the recipe; may be repeated (docs/recipes.md lists all)",
    )


def _add_run(verb: argparse.ArgumentParser, default: str) -> None:
    verb.add_argument("--run", type=Path, metavar="DIR", help=f"run directory {default}")
    existing = verb.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on with a run that is there")
    existing.add_argument("--overwrite", action="store_true", help="delete a run that is there")
