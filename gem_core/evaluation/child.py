"""Evaluation episodes by processes with an engine each, which end before they are returned.

An engine that lived in this process would keep its memory, on which a trainer counts. On a GPU
there is a process for each GPU of the node, which sees that one alone; on a CPU there are as many
as a node of the run has processes. Each plays a part of the tasks. It gets recipe, model and tasks
in a file and writes the episodes into another one; the environments are made there, from the data
of the run that `gem_core.runs.directory.run_dir.RUN_VARIABLE` names. The processes end with this
one, also when it is killed.

``python -m gem_core.evaluation.child FOLDER`` is one of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.rollout import Request, play_batch, play_many, require_healthy
from gem_core.errors import GemError, RunError
from gem_core.evaluation.engines import CONCURRENCY, TITLES, engine_loader
from gem_core.policies.gpu import release_memory, wait_for_memory
from gem_core.runs.directory.files import refuse_link
from gem_core.runs.directory.run_dir import RUN_VARIABLE
from gem_core.runs.environments.pools import close_run_pools
from gem_core.runs.program import Program, run_programs
from gem_core.runs.recipe.load import stored_recipe
from gem_core.runs.recipe.recipe import Recipe

REQUEST = "request.json"
ANSWER = "answer.json"
SIGN = "sign"
"""File that a process touches whenever its engine has answered."""
SILENCE_S = 1800.0
"""Seconds without an answer, the loading included, after which a process is taken for dead."""
_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Answer:
    """What the processes played.

    Attributes:
        episodes: in the order of the tasks.
        version: of the engine.
        load_s: wall seconds until the last engine could be asked.
        play_s: wall seconds of the episodes, of the process with the most.
        engine_s: those of them inside of the engine's steps, as far as it counts them.
        steps: the engines' steps, where they are counted.
        rows: requests that were in them, summed over steps.
        processes: number of processes.
    """

    episodes: list[Episode]
    version: str
    load_s: float
    play_s: float
    engine_s: float
    steps: int
    rows: int
    processes: int = 1


def episodes_by(
    engine: str, recipe: Recipe, model_dir: str | Path, log: Path, episodes: int | None = None
) -> Answer:
    """Play evaluation episodes with a saved model in processes, and wait for their end.

    What the first process prints is appended to ``log``; the others' logs are beside it.

    Args:
        engine: ``hf``, ``vllm`` or ``sglang``.
        recipe: the experiment.
        model_dir: Hugging Face directory or id, including a tokenizer.
        log: see above.
        episodes: number of episodes; ``None`` = ``eval.episodes``.

    Raises:
        GemError: a process failed, was ended, hangs or left no answer; the message has the end of
            its log. It also fails if more than half of the episodes failed.
    """
    count = recipe.eval.episodes if episodes is None else episodes
    own = _variables(recipe, count)
    release_memory()
    with tempfile.TemporaryDirectory(prefix="gem-core-eval-") as folder:
        parts = [_Part(engine, Path(folder), log, k, len(own), count) for k in range(len(own))]
        programs = [
            part.program(recipe, model_dir, variables)
            for part, variables in zip(parts, own, strict=True)
        ]
        run_programs(programs, SILENCE_S)
        answers = [part.answer() for part in parts]
    played = [episode for answer in answers for episode in answer.episodes]
    require_healthy(played)
    return Answer(
        episodes=played,
        version=answers[0].version,
        load_s=max(answer.load_s for answer in answers),
        play_s=max(answer.play_s for answer in answers),
        engine_s=max(answer.engine_s for answer in answers),
        steps=sum(answer.steps for answer in answers),
        rows=sum(answer.rows for answer in answers),
        processes=len(answers),
    )


def _variables(recipe: Recipe, count: int) -> list[dict[str, str]]:
    """Return the environment variables of each process: on a GPU the one that it sees."""
    most = max(1, min(recipe.hardware.gpus_per_node, count))
    if recipe.hardware.device == "cpu":
        return [{} for _ in range(most)]
    given = os.environ.get(_GPUS)
    if given is None:
        import torch

        seen = [str(number) for number in range(torch.cuda.device_count())]
    else:
        seen = [name.strip() for name in given.split(",") if name.strip()]
    if not seen:
        raise RunError(
            "The evaluation finds no GPU on this machine: start the run on a node with GPUs, or "
            "set eval.engine=hf."
        )
    return [{_GPUS: name} for name in seen[:most]]


class _Part:
    """The share of one process: adjacent tasks, so that each has all environments of a mix."""

    def __init__(
        self, engine: str, folder: Path, log: Path, number: int, parts: int, count: int
    ) -> None:
        self.name = f"The evaluation with {TITLES[engine]}"
        if parts > 1:
            self.name = f"Process {number + 1} of {parts} of the evaluation with {TITLES[engine]}"
        self.log = log if number == 0 else log.with_name(f"{log.stem}-{number}{log.suffix}")
        self.folder = folder / str(number)
        self.tasks = range(number * count // parts, (number + 1) * count // parts)
        self.request = {
            "engine": engine,
            "number": number,
            "tasks": [self.tasks.start, self.tasks.stop],
        }

    def program(
        self, recipe: Recipe, model_dir: str | Path, variables: Mapping[str, str]
    ) -> Program:
        """Write the request; return the program that answers it."""
        self.folder.mkdir()
        request = {**self.request, "recipe": recipe.to_dict(), "model": str(model_dir)}
        (self.folder / REQUEST).write_bytes(msgspec.json.encode(request))
        command = [sys.executable, "-m", __name__, str(self.folder)]
        surroundings = {**os.environ, **variables}
        return Program(self.name, command, surroundings, refuse_link(self.log), self.folder / SIGN)

    def answer(self) -> Answer:
        """Read the answer; one that is missing or short is an error."""
        path = self.folder / ANSWER
        if not path.exists():
            raise RunError(f"{self.name} ended without an answer; see {self.log}.")
        data: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        played = [Episode.from_dict(row) for row in data.pop("episodes")]
        if [episode.index for episode in played] != list(self.tasks):
            raise RunError(
                f"{self.name} played {len(played)} of {len(self.tasks)} episodes; see {self.log}."
            )
        return Answer(episodes=played, **data)


def main(arguments: Sequence[str]) -> None:
    """Play what the request asks for and write the answer.

    After an error the process ends at once: what libraries print when an interpreter ends would
    hide the error at the end of the log.
    """
    folder = Path(arguments[0])
    request = msgspec.json.decode((folder / REQUEST).read_bytes())
    try:
        answer = _play(request, folder / SIGN)
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


def _play(request: Mapping[str, Any], sign: Path) -> dict[str, Any]:
    """Play the episodes; return the fields of `Answer` as JSON types."""
    recipe, engine = stored_recipe(request["recipe"]), request["engine"]
    if recipe.hardware.device == "gpu":
        wait_for_memory()  # of a trainer, or of an evaluation, whose processes have just ended
    began = time.perf_counter()
    try:
        with _loaded(engine, recipe, request["model"], request["number"]) as (factory, policy):
            loaded = time.perf_counter()
            signed = _Signed(policy, sign)
            machines = [factory.evaluation(index) for index in range(*request["tasks"])]
            if engine == "hf":
                played = play_batch(machines, signed)
            else:
                played = asyncio.run(play_many(machines, signed, concurrency=CONCURRENCY))
            ended = time.perf_counter()
    finally:
        close_run_pools(os.environ.get(RUN_VARIABLE))
    work = getattr(policy, "work", None)
    return {
        "episodes": [episode.to_dict() for episode in played],
        "version": sys.modules["transformers" if engine == "hf" else engine].__version__,
        "load_s": loaded - began,
        "play_s": ended - loaded,
        "engine_s": work.seconds if work else signed.seconds,
        "steps": work.steps if work else 0,
        "rows": work.rows if work else 0,
    }


@contextmanager
def _loaded(engine: str, recipe: Recipe, model_dir: str, number: int) -> Iterator[Any]:
    """Load a saved model; yield what makes machines, and the policy."""
    if engine != "hf":
        with engine_loader(engine)(recipe, model_dir, number) as loaded:
            yield loaded
        return
    from gem_core.evaluation.local import load_policy

    with load_policy(recipe, model_dir) as (factory, policy, _):
        yield factory, policy


class _Signed:
    """A policy that touches a file whenever it has answered.

    Attributes:
        seconds: wall seconds of the calls for a batch.
    """

    def __init__(self, policy: Any, sign: Path) -> None:
        self.seconds = 0.0
        self._policy = policy
        self._sign = sign
        sign.touch()

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`."""
        completion: Completion = await self._policy.complete(request)
        self._sign.touch()
        return completion

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `gem_core.episodes.rollout.BatchPolicy`."""
        began = time.perf_counter()
        completions: list[Completion] = self._policy.complete_batch(requests)
        self.seconds += time.perf_counter() - began
        self._sign.touch()
        return completions


if __name__ == "__main__":
    main(sys.argv[1:])
