"""Checks of small runs by the command line: what a run leaves, repeats, and resumes."""

from __future__ import annotations

import math
from typing import Any

from gem_compare.lockstep.recipe import LOCKSTEP
from gem_conform.candidate import Candidate
from gem_conform.changes import all_keys, needs_of, valid_changes
from gem_conform.failures import NotConforming, require_none
from gem_conform.metric_names import COMMON
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.key_needs import NEEDS
from gem_core.training.stopping import EXIT_CODE, stopped_step

USER_ERROR = 2
"""Exit code of ``gem-core train`` where the recipe is refused."""
FIRST = (*LOCKSTEP, "train.steps=3", "algorithm.epochs=2", "eval.episodes=4")
"""Overrides of the run that `check_result`, `check_repeat` and ``lockstep`` look at."""
STEPS = 12
STOP_AFTER = 2
STOPPED = (
    f"train.steps={STEPS}",
    "batch.episodes=6",
    "algorithm.epochs=1",
    "train.log_episodes=0",
    "train.save_minutes=0",
    "sampling.top_k=1",  # whatever an engine draws from, it takes the most likely token
)
"""Overrides of the run that is stopped, and of the one that it must equal."""
RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""By how much a figure of a resumed run may differ."""


def check_refusal(candidate: Candidate) -> str:
    """A refused recipe ends the command with exit code 2, one line, and no run directory."""
    keys = {f"trainer.{candidate.name}.no_such_key": f"trainer.{candidate.name}.no_such_key=1"}
    refused = _a_refused_value(candidate)
    keys |= refused
    for number, (key, text) in enumerate(keys.items()):
        run = f"refused-{number}"
        ended = candidate.start(run, text)
        if ended.code != USER_ERROR or key not in ended.output or "Traceback" in ended.output:
            raise NotConforming(f"--set {text}: exit code {ended.code}, and\n{ended.tail}")
        if candidate.path(run).exists():
            raise NotConforming(f"--set {text} left {candidate.path(run)}")
    return f"{', '.join(keys.values())}"


def _a_refused_value(candidate: Candidate) -> dict[str, str]:
    """Return one key that the adapter refuses, with a value that the core accepts."""
    for key in sorted(candidate.tables.refused):
        for change in valid_changes("cpu", key, all_keys()[key]):
            if not change.also and not needs_of(key, "", NEEDS):
                return {key: f"{key}={change.text}"}
    return {}


def check_result(candidate: Candidate) -> str:
    """A run of three steps, each with its own tasks, ends in a model, a result, common metrics."""
    run = candidate.run("first", *FIRST)
    rows = run.metrics()
    steps = [row["step"] for row in rows]
    if steps != [1, 2, 3]:
        raise NotConforming(f"metrics.jsonl has the steps {steps}, not [1, 2, 3]")
    for row in rows:
        require_none(f"metrics missing in step {row['step']}", sorted(COMMON - row.keys()))
        wrong = [k for k, v in row.items() if not math.isfinite(v)]
        require_none(f"metrics of step {row['step']} that are not finite", wrong)
    tasks: dict[int, set[tuple[str, int | None]]] = {}
    for tags, episode in run.episodes():
        if tags["split"] != "train":
            continue
        tasks.setdefault(tags["step"], set()).add((episode.env_id, episode.seed))
    if sorted(tasks) != steps:
        raise NotConforming(f"the log has episodes of the steps {sorted(tasks)}, not {steps}")
    for later in steps[1:]:
        played = set().union(*(tasks[step] for step in range(1, later)))
        require_none(f"step {later} plays tasks of a step before", sorted(tasks[later] & played))
    result = run.result
    for when in ("before", "after"):
        if not result[when] or result[when]["episodes"] != result["n"]:
            raise NotConforming(f"result.json has no evaluation of {result['n']} tasks {when}")
    seconds = sum(row["time/step"] for row in rows)
    return f"{len(COMMON)} common metrics in each of {len(rows)} steps, which took {seconds:.1f} s"


def check_repeat(candidate: Candidate) -> str:
    """The same run again gives the same tokens, figures and weights, to the last digit."""
    first = candidate.run("first", *FIRST)
    again = candidate.run("again", *FIRST)
    sides: list[tuple[str, Any, Any]] = [
        ("episodes", episode_tokens(first), episode_tokens(again)),
        ("metrics", numbers(first.metrics()), numbers(again.metrics())),
        ("evaluations", numbers(first.evals()), numbers(again.evals())),
        ("weights", weights(first), weights(again)),
    ]
    require_none("not equal", [name for name, one, other in sides if one != other])
    return f"{', '.join(name for name, _, _ in sides)} are equal"


def check_resume(candidate: Candidate) -> str:
    """A run that SIGTERM stopped goes on where it was, and its curve is that of a whole run."""
    whole = candidate.run("whole", *STOPPED)
    ended = candidate.stop_after(STOP_AFTER, "stopped", *STOPPED)
    run = RunDir(candidate.path("stopped"))
    last = stopped_step(run)
    if ended.code != EXIT_CODE or last is None or not STOP_AFTER <= last < STEPS:
        raise NotConforming(f"exit code {ended.code}, stopped after step {last}:\n{ended.tail}")
    if run.model.exists() or run.finished:
        raise NotConforming("a stopped run has a model or a result")
    candidate.run("stopped", *STOPPED, resume=True)
    steps = [row["step"] for row in run.lines("metrics.jsonl")]
    if steps != list(range(1, STEPS + 1)):
        raise NotConforming(f"metrics.jsonl has the steps {steps}: one was lost or repeated")
    differing = [
        f"step {mine['step']}: {name} is {mine.get(name)}, not {value}"
        for mine, theirs in zip(numbers(run.metrics()), numbers(whole.metrics()), strict=True)
        for name, value in theirs.items()
        if not _close(mine.get(name), value)
    ]
    require_none("the resumed run differs from a whole one", differing[:5])
    return f"stopped after step {last} of {STEPS}; every figure within {RELATIVE:g} of a whole run"


def _close(one: float | None, other: float) -> bool:
    return one is not None and math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def episode_tokens(run: RunDir) -> dict[tuple[int, str, int], list[tuple[Any, Any]]]:
    """Return tokens and log-probabilities of all logged episodes, by step, split and task."""
    return {
        (tags["step"], tags["split"], episode.index): [
            (segment.token_ids, segment.logprobs) for segment in episode.segments
        ]
        for tags, episode in run.episodes()
    }


def numbers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a log without what a clock decides."""
    return [
        {k: v for k, v in row.items() if not k.startswith("time") and k != "seconds"}
        for row in rows
    ]


def weights(run: RunDir) -> bytes:
    """Return the trained model's weights, byte for byte."""
    return (run.model / "model.safetensors").read_bytes()
