"""``gem-core eval``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_core.cli.eval_checks import refuse_idle_options
from gem_core.cli.output import is_quiet, print_json, quiet_libraries
from gem_core.errors import GemError
from gem_core.evaluation.contenders import Contender, EndpointModel, LocalModel, ScriptedPlayer
from gem_core.evaluation.folder import EvalDir
from gem_core.evaluation.plan import EvaluationSubject, count_tasks, read_subject
from gem_core.evaluation.tables import (
    COMPARISON_HEAD,
    comparison_rows,
    find_evaluations,
    leaderboard,
    result_table,
    usage_lines,
)
from gem_core.policies.endpoint.policy import EndpointConfig
from gem_core.policies.endpoint.retries import RetryConfig
from gem_core.policies.endpoint.usage import read_price
from gem_core.runs.directory.run_dir import IfExists

ITEMS_WITHOUT_RESULT = 1
"""Exit code if an item has no result."""


def evaluate(arguments: argparse.Namespace) -> int:
    """Evaluate, or compare, score again or list what was evaluated."""
    others = [name for name in ("compare", "rescore", "table") if getattr(arguments, name)]
    if len(others) + bool(arguments.sources) != 1:
        raise GemError(
            "Name what to evaluate (a run, a recipe, or ids of environments), or give one of "
            "--compare, --rescore and --table."
        )
    refuse_idle_options(arguments)
    if arguments.compare:
        return _compare(arguments)
    if arguments.table:
        found = find_evaluations(arguments.table)
        for line in found.left_out:
            print(f"Left out: {line}", file=sys.stderr)
        _print_table(arguments, *leaderboard(found.evaluations))
        return 0
    return _rescore(arguments) if arguments.rescore else _evaluate(arguments)


def _evaluate(arguments: argparse.Namespace) -> int:
    from gem_core.evaluation.evaluation import run_evaluation
    from gem_core.evaluation.progress import no_progress, show_progress

    quiet_libraries()
    subject = _limit_item(
        read_subject(arguments.sources, arguments.profile, arguments.overrides), arguments
    )
    contender = _contender(arguments, subject)
    counts = count_tasks(subject, arguments.episodes, arguments.tasks)
    with _folder(arguments) as out:
        result = run_evaluation(
            subject,
            counts,
            contender,
            out,
            samples=arguments.samples,
            if_exists=_if_exists(arguments),
            retry_errors=arguments.retry_errors,
            progress=no_progress if is_quiet() else show_progress,
        )
    return _print_result(arguments, result)


def _rescore(arguments: argparse.Namespace) -> int:
    from gem_core.evaluation.rescore import rescore

    with _folder(arguments) as out:
        done = rescore(arguments.rescore, out, _if_exists(arguments))
    code = _print_result(arguments, done.result)
    if not arguments.json:
        print(f"{done.changed} of {done.episodes} episodes have another score or end.")
    return code


def _compare(arguments: argparse.Namespace) -> int:
    from gem_core.evaluation.paired import compare

    first, second = (EvalDir(path) for path in arguments.compare)
    comparisons = compare(first, second)
    if arguments.json:
        print_json(arguments, [one._asdict() for one in comparisons])
        return 0
    print(f"first: {first.path}\nsecond: {second.path}\n")
    _print_table(arguments, COMPARISON_HEAD, comparison_rows(comparisons))
    return 0


# -- who plays, and what -------------------------------------------------------------------------


def _contender(arguments: argparse.Namespace, subject: EvaluationSubject) -> Contender:
    if sum(bool(value) for value in (arguments.player, arguments.model)) > 1:
        raise GemError("--player and --model exclude each other: one of them plays.")
    concurrency = arguments.concurrency
    if concurrency is not None and concurrency < 1:
        raise GemError("--concurrency is the number of episodes at a time, at least 1.")
    if arguments.player:
        return ScriptedPlayer(arguments.player, concurrency or 64)
    if arguments.base_url:
        return _endpoint(arguments)
    return LocalModel(_local_model(arguments, subject), concurrency, subject.trainer)


def _local_model(arguments: argparse.Namespace, subject: EvaluationSubject) -> str:
    from gem_core.policies.models.source import require_hf
    from gem_core.policies.models.weights import require_weights
    from gem_core.training.tiny import model_path

    if arguments.model:
        model = str(arguments.model)
    elif subject.run is not None:
        model = str(subject.run.model)
    elif not subject.counted:
        raise GemError("Name who plays: --model, --model with --base-url, or --player.")
    else:
        model = model_path(subject.recipe)
    require_hf("A local model")
    # Before there is a directory for the results; of a run's or recipe's model, its revision.
    own = subject.recipe.model
    require_weights(model, own.revision if model == own.path else None)
    return model


def _endpoint(arguments: argparse.Namespace) -> EndpointModel:
    if not arguments.model:
        raise GemError("--base-url needs --model, the name of a model of the endpoint.")
    if arguments.attempts < 1 or arguments.timeout <= 0:
        raise GemError("--attempts must be at least 1, and --timeout positive.")
    if arguments.requests_per_minute is not None and arguments.requests_per_minute <= 0:
        raise GemError("--requests-per-minute must be positive.")
    config = EndpointConfig(
        base_url=arguments.base_url,
        model=arguments.model,
        api=arguments.api,
        timeout_s=arguments.timeout,
        requests_per_minute=arguments.requests_per_minute,
        retry=RetryConfig(attempts=arguments.attempts),
        tokens_key=arguments.tokens_key,
        body=_body(arguments.body),
        send_seeds=arguments.send_seeds,
        native_tools=arguments.native_tools,
        item_tokens=arguments.item_tokens,
        system=arguments.system,
    )
    price = read_price(arguments.prices, arguments.model) if arguments.prices else None
    if not arguments.api_key_env.isidentifier():
        raise GemError("--api-key-env is the name of an environment variable, not the key itself.")
    key = os.environ.get(arguments.api_key_env)
    return EndpointModel(config, key=key, price=price, concurrency=arguments.concurrency or 64)


def _body(text: str | None) -> dict[str, Any]:
    try:
        body = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        raise GemError(f"--body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise GemError("--body must be a JSON object.")
    return body


def _limit_item(subject: EvaluationSubject, arguments: argparse.Namespace) -> EvaluationSubject:
    """Return the subject with the wall seconds of an item."""
    from msgspec.structs import replace

    seconds = arguments.item_seconds
    if seconds is None:
        return subject
    if not 0 < seconds < float("inf"):
        raise GemError("--item-seconds must be positive.")
    recipe = subject.recipe
    limits = replace(recipe.limits, episode_deadline_s=seconds)
    return subject._replace(recipe=replace(recipe, limits=limits))


# -- where, and what is printed ------------------------------------------------------------------


@contextmanager
def _folder(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield the directory of the results; one that is deleted afterwards without ``--out``."""
    if arguments.out is not None:
        yield arguments.out
        return
    if arguments.resume or arguments.overwrite:
        raise GemError("--resume and --overwrite need --out, the directory of the evaluation.")
    with tempfile.TemporaryDirectory(prefix="gem-core-eval-") as folder:
        yield Path(folder) / "eval"


def _if_exists(arguments: argparse.Namespace) -> IfExists:
    if arguments.resume:
        return "resume"
    return "overwrite" if arguments.overwrite else "error"


def _print_result(arguments: argparse.Namespace, result: dict[str, Any]) -> int:
    if arguments.json:
        print_json(arguments, result)
    else:
        print(f"{result['model']}: {result['items']} items, {result['samples']} per task\n")
        head, rows = result_table(result)
        _print_table(arguments, head, rows)
        for line in usage_lines(result):
            print(line)
    return ITEMS_WITHOUT_RESULT if result["errors"] else 0


def _print_table(
    arguments: argparse.Namespace, head: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    from gem_core.results.tables import markdown_table, plain_table

    table = markdown_table if arguments.markdown else plain_table
    print(table(tuple(head), [tuple(row) for row in rows]))
