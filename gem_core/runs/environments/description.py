"""Make every environment of a run once, and write what it was made from into ``run.json``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import (
    RunData,
    belonging_to,
    make_with,
    provenance,
    recorded_data,
    spec_of,
)
from gem_core.runs.environments.rows import Row, as_json, commit_of, config_key, row_key
from gem_core.runs.environments.servers import described_there, wanted
from gem_core.runs.environments.tools import described_tools, task_digest, tools_key
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, Split
from gem_core.runs.recipe.templates import answer_conflict
from gem_core.runs.splits import RunEnvs, run_envs


def describe_environments(
    recipe: Recipe, resumed: RunDir | None = None, envs: RunEnvs | None = None
) -> list[Row]:
    """Make every environment of a recipe, which checks its parameters and its data.

    A warning says where the prompt asks for answers that an environment does not read.
    With ``workers.backend = "server"`` the servers make them, and say what they are. With
    ``resumed``, a run that continues, the data must be those that it began with.

    Returns:
        One row per environment of the training, in the recipe's order, then those that only the
        evaluation plays. ``used_in``: ``train``, ``eval`` or both; ``id``; ``kwargs`` as in the
        recipe, with the part of the data; ``fingerprint`` and ``data_revision`` of what was made;
        ``revision``: its commit on the Hub; ``items`` in its table of data; ``sample``: whether it
        is a built-in sample. What does not apply is ``None``. With tools also ``tools``: what each
        of them is on this machine, such as the sandbox's level; ``tools_key``: a digest of the
        recipe's ``tools`` and ``tool_use``. With an environment of another package or of a server
        also ``provenance``: whether its seeds decide, what the server says that it is.

    Raises:
        DataError: data are not available, or changed since the run began.
        RecipeError: an environment does not accept its parameters, or shows images; a server cannot
            be used.
    """
    record = recorded_data(resumed) if resumed is not None else None
    data = record or RunData()
    rows: list[Row] = []
    envs = run_envs(recipe) if envs is None else envs
    splits: list[Split] = ["train"]
    if recipe.eval.episodes or recipe.eval.every:
        splits.append("eval")
    for split in splits:
        for config, key in envs[split]:
            same = [row for row in rows if row_key(row) == config_key(config)]
            if split == "eval" and same:
                for row in same:
                    row["used_in"] = ["train", "eval"]
                continue
            if recipe.workers.backend == "server":
                row = _describe_served(data, recipe, config, key, split)
            else:
                row = _describe(data, recipe, config, key, split)
            data.add(row)
            rows.append(row)
    return rows


@contextmanager
def in_run(run: RunDir, rows: Sequence[Row] | None = None) -> Iterator[None]:
    """Record the environments of a run; inside the block its processes make them from these data.

    Raises:
        DataError: as `describe_environments`.
        RecipeError: as `describe_environments`.
    """
    if rows is None:
        rows = describe_environments(run.recipe, run)
    run.record({"environments": list(rows)})
    with belonging_to(run):
        yield


def _describe_served(
    data: RunData, recipe: Recipe, config: EnvConfig, key: str, split: Split
) -> Row:
    """Describe an environment as the servers of the run have it; it is not made here."""
    wanted_there = wanted(config, key, data.compare_served)
    made, facts = described_there(recipe.workers, wanted_there, key, recipe.limits.turn_deadline_s)
    return _row(config, split, made.fingerprint(), made.data_revision, facts)


def _row(
    config: EnvConfig, split: Split, fingerprint: str, revision: str | None, facts: Row
) -> Row:
    row: Row = {
        "used_in": [split],
        "id": config.id,
        "kwargs": json.loads(as_json(config.kwargs)),
        "fingerprint": fingerprint,
        "data_revision": revision,
        "items": facts["items"],
        "sample": facts["sample"],
    }
    row["revision"] = next(iter(commit_of(row).values()), None)
    return row


def _describe(data: RunData, recipe: Recipe, config: EnvConfig, key: str, split: Split) -> Row:
    env = make_with(data, config, key)
    if conflict := answer_conflict(recipe.context, config, env):
        warnings.warn(f"{key}: {conflict}", stacklevel=2)
    spec = spec_of(env)
    facts = {
        "items": getattr(env.unwrapped, "item_count", None),
        "sample": bool(getattr(env.unwrapped, "is_sample", False)),
    }
    row = _row(config, split, task_digest(spec, config, env), spec.data_revision, facts)
    told = provenance(env)
    if told:
        row["provenance"] = told
    if config.tools:
        row["tools"] = described_tools(env)
        row["tools_key"] = tools_key(config)
    env.close()
    return row
