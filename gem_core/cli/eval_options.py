"""The arguments of ``gem-core eval``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_eval_options(verb: argparse.ArgumentParser) -> None:
    """Add them, except ``--set``."""
    verb.add_argument(
        "sources",
        nargs="*",
        metavar="RUN|BASELINE|FILE|ENV",
        help="a run directory, a recipe, or ids and patterns of environments ('eval:*')",
    )
    _add_what(verb)
    _add_who(verb)
    _add_endpoint(verb)
    _add_where(verb)


def _add_what(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("what is evaluated")
    group.add_argument("--profile", help="profile that is merged over a baseline")
    group.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="tasks of all environments together (default of a recipe: eval.episodes)",
    )
    group.add_argument(
        "--tasks",
        type=int,
        metavar="N",
        help="tasks of each environment (default: every item of a data set; 100 of others)",
    )
    group.add_argument(
        "-n",
        "--samples",
        type=int,
        default=1,
        metavar="N",
        help="samples of each task, for pass@k and pass^k (default: %(default)s)",
    )
    group.add_argument(
        "--item-seconds", type=float, metavar="S", help="wall seconds of one episode at most"
    )
    group.add_argument(
        "--item-tokens",
        type=int,
        metavar="N",
        help="tokens that an endpoint may report for one episode, prompts included",
    )


def _add_who(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("who plays")
    group.add_argument(
        "--model",
        help="Hugging Face directory or id, or with --base-url a name of the endpoint (default: "
        "the run's or the recipe's model)",
    )
    group.add_argument("--player", choices=("expert", "random"), help="a scripted player")
    group.add_argument(
        "--concurrency", type=int, metavar="N", help="episodes at a time (default: 64)"
    )


def _add_endpoint(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("an OpenAI-compatible endpoint")
    group.add_argument("--base-url", metavar="URL", help="such as http://127.0.0.1:8000/v1")
    group.add_argument(
        "--api",
        choices=("chat", "completions"),
        default="chat",
        help="chat sends messages, completions the recipe's template as text (default: chat)",
    )
    group.add_argument(
        "--api-key-env",
        metavar="NAME",
        default="OPENAI_API_KEY",
        help="environment variable that has the key (default: %(default)s; unset: no key)",
    )
    group.add_argument("--system", metavar="TEXT", help="system message of chat")
    group.add_argument(
        "--body", metavar="JSON", help='further fields of each request: {"reasoning_effort": "low"}'
    )
    group.add_argument(
        "--tokens-key",
        default="max_tokens",
        metavar="NAME",
        help="name of the limit of a completion (default: %(default)s)",
    )
    group.add_argument("--send-seeds", action="store_true", help="send a seed with each request")
    group.add_argument(
        "--native-tools", action="store_true", help="send the environment's tools as 'tools'"
    )
    group.add_argument("--timeout", type=float, default=600.0, metavar="S", help="of one request")
    group.add_argument(
        "--attempts", type=int, default=8, metavar="N", help="requests per turn (default: 8)"
    )
    group.add_argument("--requests-per-minute", type=float, metavar="N", help="at most")
    group.add_argument(
        "--prices", type=Path, metavar="FILE", help="table of prices, for the cost in money"
    )


def _add_where(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("directories")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="keep items, episodes and result here; without it only the result is printed",
    )
    existing = group.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="continue the evaluation in --out")
    existing.add_argument("--overwrite", action="store_true", help="delete it first")
    group.add_argument(
        "--retry-errors", action="store_true", help="with --resume, play items with errors again"
    )
    group.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar="DIR",
        help="compare two evaluations, task by task",
    )
    group.add_argument(
        "--rescore",
        type=Path,
        metavar="RUN",
        help="score the stored episodes of a run again, into --out",
    )
    group.add_argument(
        "--table", type=Path, metavar="DIR", help="a table of all evaluations in a directory"
    )
    group.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    group.add_argument("--json", action="store_true", help="print the result as JSON")
