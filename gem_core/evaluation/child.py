"""Evaluation episodes by vLLM in a process of its own, which ends before they are returned.

An engine that lived in this process would keep its memory, on which a trainer counts. The process
gets the recipe and the model in a file and writes the episodes into another one; the environments
are made there, from the data of the run that `gem_core.runs.directory.run_dir.RUN_VARIABLE` names.
It ends with this process, also when this one is killed.

``python -m gem_core.evaluation.child FOLDER`` is that process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import play_many, require_healthy
from gem_core.errors import GemError, RunError
from gem_core.policies.gpu import release_memory
from gem_core.runs.directory.run_dir import RUN_VARIABLE
from gem_core.runs.environments.pools import close_run_pools
from gem_core.runs.program import run_program
from gem_core.runs.recipe.load import stored_recipe
from gem_core.runs.recipe.recipe import Recipe

REQUEST = "request.json"
ANSWER = "answer.json"
NAME = "The evaluation with vLLM"


@dataclass(frozen=True)
class Answer:
    """What the process played.

    Attributes:
        episodes: in the order of the tasks.
        version: of vLLM.
        load_s: wall seconds until the engine could be asked.
        play_s: wall seconds of the episodes.
        engine_s: those of them inside of the engine's steps.
        steps: the engine's steps.
        rows: requests that were in them, summed over steps.
    """

    episodes: list[Episode]
    version: str
    load_s: float
    play_s: float
    engine_s: float
    steps: int
    rows: int


def episodes_by_vllm(
    recipe: Recipe, model_dir: str | Path, log: Path, episodes: int | None = None
) -> Answer:
    """Play evaluation episodes with a saved model in a process with vLLM, and wait for its end.

    What the process prints is appended to ``log``.

    Raises:
        GemError: the process failed, was ended or left no answer; the message has the end of its
            log. It also fails if more than half of the episodes failed.
    """
    count = recipe.eval.episodes if episodes is None else episodes
    request = {"recipe": recipe.to_dict(), "model": str(model_dir), "episodes": count}
    release_memory()
    with tempfile.TemporaryDirectory(prefix="gem-core-eval-") as folder:
        (Path(folder) / REQUEST).write_bytes(msgspec.json.encode(request))
        command = [sys.executable, "-m", __name__, folder]
        run_program(NAME, command, os.environ, log)
        return _read(Path(folder) / ANSWER, count, log)


def _read(path: Path, count: int, log: Path) -> Answer:
    """Read the answer; one that is missing or short is an error."""
    if not path.exists():
        raise RunError(f"{NAME} ended without an answer; see {log}.")
    data: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    played = [Episode.from_dict(row) for row in data.pop("episodes")]
    if [episode.index for episode in played] != list(range(count)):
        raise RunError(f"{NAME} played {len(played)} of {count} episodes; see {log}.")
    return Answer(episodes=played, **data)


def main(arguments: Sequence[str]) -> None:
    """Play what the request asks for and write the answer.

    After an error the process ends at once: what libraries print when an interpreter ends would
    hide the error at the end of the log.
    """
    folder = Path(arguments[0])
    request = msgspec.json.decode((folder / REQUEST).read_bytes())
    try:
        answer = _play(stored_recipe(request["recipe"]), request["model"], request["episodes"])
    except Exception as error:
        if isinstance(error, GemError):
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    partial = folder / f"{ANSWER}.partial"
    partial.write_bytes(msgspec.json.encode(answer))
    partial.replace(folder / ANSWER)


def _play(recipe: Recipe, model_dir: str, count: int) -> dict[str, Any]:
    """Play the episodes; return the fields of `Answer` as JSON types."""
    from gem_core.policies.vllm.engine import CONCURRENCY, stepping

    began = time.perf_counter()
    try:
        with stepping(recipe, model_dir) as (factory, policy):
            loaded = time.perf_counter()
            machines = [factory.evaluation(index) for index in range(count)]
            played = asyncio.run(play_many(machines, policy, concurrency=CONCURRENCY))
            ended = time.perf_counter()
    finally:
        close_run_pools(os.environ.get(RUN_VARIABLE))
    require_healthy(played)
    import vllm

    return {
        "episodes": [episode.to_dict() for episode in played],
        "version": vllm.__version__,
        "load_s": loaded - began,
        "play_s": ended - loaded,
        "engine_s": policy.work.seconds,
        "steps": policy.work.steps,
        "rows": policy.work.rows,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
