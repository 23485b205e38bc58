"""The command line of ``run.py``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from gem_core.runs import provenance

ORDER = ("trl", "verl", "openrlhf", "oat", "rl2")
"""The trainers, in the order in which they run."""


def arguments(description: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, help="directory of a model of 0.6B weights or so")
    parser.add_argument(
        "--random-model",
        action="store_true",
        help="a model of Qwen3-0.6B's sizes with random weights, on a GPU (needs transformers)",
    )
    parser.add_argument("--cpu", action="store_true", help="tiny model, stand-in engines, no GPU")
    parser.add_argument("--trainers", nargs="+", choices=ORDER, default=ORDER, metavar="NAME")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter of a trainer (default: GEM_CORE_PYTHON_<NAME>, .venvs/NAME)",
    )
    parser.add_argument("--steps", type=int, default=3, help="training steps (default: 3)")
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment variable of the trainers, which the report names",
    )
    parser.add_argument(
        "--each",
        type=settings,
        default=[],
        metavar="NAME=VALUE,VALUE",
        help="environment variable of which each trainer runs with every value, one after another; "
        "each has a row and a file, NAME-VALUE.json",
    )
    parser.add_argument("--gpu", help="number of the GPU (default: the first of this process)")
    parser.add_argument(
        "--start-minutes",
        type=float,
        default=20.0,
        metavar="MINUTES",
        help="limit of each trainer until its first step is over; a cold first start loads weights "
        "and compiles kernels (default: 20)",
    )
    parser.add_argument(
        "--minutes", type=float, default=6.0, help="limit of the other steps (default: 6)"
    )
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--anyway", action="store_true", help="also where the doctor says no")
    provenance.add_option(parser)
    options = parser.parse_args()
    check(parser, options)
    return options


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program where options do not go together, or have another form."""
    if options.cpu + options.random_model + (options.model is not None) != 1:
        parser.error("give either --model PATH or --random-model (on a GPU) or --cpu")
    if options.model is not None and not (options.model / "config.json").is_file():
        parser.error(f"{options.model} is not the directory of a model: it has no config.json")
    if options.steps < 2:
        parser.error("--steps must be 2 or more: the first step is left out of the rates")
    for text in options.python:
        if text.partition("=")[0] not in ORDER or not text.partition("=")[2]:
            parser.error(f"--python {text} is not NAME=PATH with a NAME of {', '.join(ORDER)}")
    for text in options.variable:
        if "=" not in text or not text.partition("=")[0].isidentifier():
            parser.error(f"--variable {text} is not NAME=VALUE")
    provenance.check_option(parser, options)


def settings(text: str) -> list[str]:
    """Return ``NAME=VALUE`` for each value of ``--each``.

    Raises:
        argparse.ArgumentTypeError: it has another form.
    """
    name, _, values = text.partition("=")
    found = values.split(",")
    if (
        not name.isidentifier()
        or len(set(found)) < 2
        or not all(re.fullmatch(r"[\w.]+", v) for v in found)
    ):
        raise argparse.ArgumentTypeError(
            f"{text} is not NAME=VALUE,VALUE with two values or more, of letters, digits, _ and ."
        )
    return [f"{name}={value}" for value in found]
