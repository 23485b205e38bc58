"""Train a pretrained language model, from nothing to a curve beside its controls.

    .venvs/trl/bin/python benchmarks/real_model/run.py --accept-terms
    python benchmarks/real_model/run.py --accept-terms --gpu         # on one GPU, by vLLM
    .venvs/trl/bin/python benchmarks/real_model/run.py --finished RUN   # its controls alone
    .venvs/trl/bin/python benchmarks/real_model/run.py --table-only   # the page, from results/

Downloads Gemma 3 270M (its terms: https://ai.google.dev/gemma/terms), cuts its vocabulary to the
task's, gives it a warm start, trains it with TRL in the profile ``gemma``, plays the controls, and
prints what came out. The run is a folder like any other; with ``--record`` its figures are copied
into ``results/``, from which the page is made.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from real_model_page import RESULTS, write_page
from real_model_page import report as report_of
from samples import keep_samples

from gem_compare.grid import ALGORITHMS
from gem_core.errors import GemError
from gem_core.evaluation.controls.file import FILE as CONTROLS
from gem_core.results import learning_curve, record
from gem_core.runs import provenance
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe

MODEL = "gemma-3-270m"
PROFILE = "gemma"
GPU = (
    "hardware.device=gpu",
    "model.dtype=bfloat16",
    "algorithm.lr=1e-5",
    "batch.episodes=128",
    "batch.micro_batch=32",
)
"""What ``--gpu`` changes in the profile, chosen on seed 100."""
STEPS = 60
"""Training steps on a GPU."""
FEWER_STEPS = {"math-12k-python": 20, "natural-questions-search": 20}
"""Those of baselines that were solved earlier on seed 100."""
ENGINES = {
    "vllm": (
        "hardware.engine=vllm",
        "trainer.trl.vllm_gpu_memory_utilization=0.1",
        "trainer.trl.vllm_enable_sleep_mode=false",
    ),
    "hf": ("hardware.engine=hf",),
}
"""Engines on a GPU -> what they change. The small one of vLLM stays awake; several runs share a GPU
only with the trainer's own generation, as vLLM measures the free memory when it starts."""


def main() -> int:
    """Run what the options ask for."""
    arguments = parse()
    if arguments.table_only:
        write_page()
        return 0
    with exclusive(arguments.out):
        folder, run = finished(arguments) if arguments.finished else trained(arguments)
    picture = learning_curve([run], folder / "learning-curve.png")
    print(f"\n{report_of(run, folder)}\nThe curve: {picture}; the run: {run.path}")
    if arguments.record:
        keep(run, folder)
        write_page()
    return 0


def parse() -> argparse.Namespace:
    """Return the options; with ``--record`` a checkout with changes ends the program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--baseline", default="chain-sum", help="(default: %(default)s)")
    parser.add_argument("--trainer", default="trl", help="(default: %(default)s)")
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default="rebn", help="(default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/real-model"), help="folder of runs")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--gpu", action="store_true", help="train on one GPU, with larger batches")
    parser.add_argument("--engine", choices=ENGINES, help="with --gpu (default: vllm)")
    parser.add_argument("--finished", type=Path, metavar="RUN", help="play the controls of a run")
    parser.add_argument("--accept-terms", action="store_true", help="accept the Gemma Terms of Use")
    parser.add_argument("--record", action="store_true", help="keep the figures in results/")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if arguments.engine and not arguments.gpu:
        parser.error("--engine goes with --gpu: on a CPU the profile says it.")
    if arguments.record and arguments.overrides:
        parser.error("--set is for trials, which are not recorded: leave out --record.")
    if arguments.record:
        provenance.check_option(parser, arguments)
    return arguments


def engine_of(arguments: argparse.Namespace) -> str | None:
    """Return the engine on a GPU; ``None`` on a CPU."""
    return arguments.engine or "vllm" if arguments.gpu else None


def algorithm_of(recipe: Recipe) -> str:
    """Return the key of `ALGORITHMS` whose estimator a recipe has.

    Raises:
        GemError: none has it.
    """
    for name, overrides in ALGORITHMS.items():
        if f"algorithm.estimator={recipe.algorithm.estimator}" in overrides:
            return name
    raise GemError(f"{recipe.algorithm.estimator} is of none of {', '.join(ALGORITHMS)}.")


def name_of(baseline: str, trainer: str, engine: str | None, algorithm: str, seed: int) -> str:
    """Return a result's name; ``engine`` is that on a GPU, ``None`` on a CPU."""
    device = {None: "", "vllm": "-gpu"}.get(engine, f"-gpu-{engine}")
    other = "" if algorithm == "rebn" else f"-{algorithm}"
    return f"{baseline}-{trainer}{device}{other}-seed{seed}"


def trained(arguments: argparse.Namespace) -> tuple[Path, RunDir]:
    """Get the model, train it and play the controls; return the folder and the run in it.

    Every stage is a command that a user can give; each is printed before it runs.

    Raises:
        GemError: a command failed, or the folder has a run.
    """
    engine = engine_of(arguments)
    algorithm: str = arguments.algorithm
    name = name_of(arguments.baseline, arguments.trainer, engine, algorithm, arguments.seed)
    folder = new_folder(arguments, name)
    run = RunDir(folder / "run")
    began = provenance.commit()
    seconds: dict[str, float] = {}
    names = [arguments.baseline, "--profile", PROFILE]
    get = ["model", "get", MODEL, "--json", "--profile", PROFILE]
    get += ["--trim-vocabulary", arguments.baseline]
    model = json.loads(
        command(get + ["--accept-terms"] * arguments.accept_terms, "model", seconds, output=True)
    )["folder"]
    options = ["--trainer", arguments.trainer, "--run", str(run.path)]
    own = [f"model.path={model}", f"seed={arguments.seed}"]
    if algorithm != "rebn":
        own += ALGORITHMS[algorithm]
    if engine is not None:
        steps = FEWER_STEPS.get(arguments.baseline, STEPS)
        own += [*GPU, *ENGINES[engine], f"train.steps={steps}"]
    for override in (*own, *arguments.overrides):
        options += ["--set", override]
    command(["train", *names, *options], "train", seconds)
    play_controls(run, folder, seconds, began)
    return folder, run


def finished(arguments: argparse.Namespace) -> tuple[Path, RunDir]:
    """Play the controls of a run that `trained` left without, as on a machine that was lost.

    Raises:
        GemError: the run has not ended, or the folder has a run.
    """
    run = RunDir(arguments.finished)
    recipe = run.recipe
    engine = recipe.hardware.engine if recipe.hardware.device == "gpu" else None
    algorithm = algorithm_of(recipe)
    name = name_of(recipe.name, run.result["trainer"], engine, algorithm, recipe.seed)
    folder = new_folder(arguments, name)
    play_controls(run, folder, {}, provenance.commit())
    return folder, run


def new_folder(arguments: argparse.Namespace, name: str) -> Path:
    """Return the folder of a run below ``--out``.

    Raises:
        GemError: there is one.
    """
    folder: Path = arguments.out / name
    if folder.exists():
        raise GemError(f"{folder} has a run: delete it, or name another folder with --out.")
    return folder


def play_controls(run: RunDir, folder: Path, seconds: dict[str, float], began: str | None) -> None:
    """Play the controls of a run and write what the stages took.

    Those without a model: the warm start was evaluated in the run.

    Raises:
        GemError: they failed, or the checkout changed since ``began``.
    """
    words = ["controls", str(run.path), "--players-only", "--out", str(folder / "controls")]
    command(words, "controls", seconds)
    if provenance.commit() != began:
        raise GemError(
            "The checkout changed while it ran: run it again in one that stays as it is."
        )
    run_files.write_object(folder / "stages.json", {"commit": began, "seconds": seconds})


def command(
    words: Sequence[str], stage: str, seconds: dict[str, float], output: bool = False
) -> str:
    """Run a ``gem-core`` command, note its wall seconds, and return what it printed.

    Args:
        words: after ``gem-core``.
        stage: the entry of ``seconds``.
        seconds: wall seconds by stage.
        output: return its output, in place of showing it.

    Raises:
        GemError: it failed; it has said why.
    """
    print(f"==> gem-core {' '.join(words)}", flush=True)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gem_core.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if output else None,
        text=True,
    )
    seconds[stage] = round(time.perf_counter() - began, 1)
    if done.returncode:
        raise GemError(f"gem-core {words[0]} failed with exit code {done.returncode}, see above.")
    return done.stdout or ""


def keep(run: RunDir, folder: Path) -> None:
    """Copy the figures of a run, its controls and its warm start into ``results/``."""
    target = RESULTS / folder.name
    if target.exists():
        shutil.rmtree(target)
    record(run, target)
    shutil.copyfile(folder / "controls" / CONTROLS, target / CONTROLS)
    shutil.copyfile(folder / "stages.json", target / "stages.json")
    keep_samples(run, target)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GemError as error:
        sys.exit(f"run.py: {error}")
