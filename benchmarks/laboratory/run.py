"""The estimators' laboratory: exact gradients, and how far each estimator is from them.

    .venvs/core/bin/python benchmarks/laboratory/run.py                    # all, and the page
    .venvs/core/bin/python benchmarks/laboratory/run.py --estimator NAME   # one, printed
    .venvs/core/bin/python benchmarks/laboratory/run.py --page-only        # from the results

NAME is any estimator that `compute_advantages` takes: one of gem-core's, that of an installed
package (entry point ``gem_core.advantages``), or ``module:function``, with PYTHONPATH for a module
that is not installed. It is measured on every process beside `reinforce`, on the same batches,
and nothing is written. Everything takes about ten minutes on two cores; of that the first gradients
of the trainers, each in its own environment, take half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measurements
from batches import Case
from exact import list_trajectories
from page import PAGE, PICTURE, draw, page
from processes import PROCESSES

from gem_compare.runner import trainer_python
from gem_core.advantages import estimator_needs
from gem_core.errors import GemError
from gem_core.results import markdown_table
from gem_core.runs import provenance
from gem_core.runs.hardware import describe_machine
from gem_core.runs.trainers import list_trainers

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
MODEL = """
import sys, torch
from transformers import Qwen3Config, Qwen3ForCausalLM
torch.manual_seed(0)
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
size |= dict(num_key_value_heads=2, head_dim=16, vocab_size=258, max_position_embeddings=512)
ids = dict(pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=True)
Qwen3ForCausalLM(Qwen3Config(**size, **ids)).save_pretrained(sys.argv[1])
"""


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--estimator", help="measure this one beside `reinforce`, and print it")
    what.add_argument("--page-only", action="store_true", help="only write the page")
    what.add_argument("--only", choices=("estimators", "trainers"), help="only this result file")
    parser.add_argument("--episodes", type=int, default=64, help="of --estimator's batches")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if arguments.estimator:
        try:
            print(table_of(arguments.estimator, arguments.episodes), end="")
        except GemError as error:
            raise SystemExit(str(error)) from None
        return 0
    if not arguments.page_only:
        provenance.check_option(parser, arguments)
        if arguments.only != "trainers":
            write("estimators", measure_estimators())
        if arguments.only != "estimators":
            write("trainers", measure_trainers())
    draw(RESULTS, PICTURE)
    PAGE.write_text(page(RESULTS), encoding="utf-8")
    return 0


def write(name: str, result: dict[str, Any]) -> None:
    """Write a result file."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(rounded(result), indent=1) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def rounded(value: Any) -> Any:
    """Return a value with every number of it to six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def origin() -> dict[str, Any]:
    """Return where a result comes from."""
    machine = describe_machine()
    return {key: machine[key] for key in ("commit", "versions", "python", "processor", "cores")}


def measure_estimators() -> dict[str, Any]:
    """Measure every case of the laboratory."""
    return {
        **origin(),
        "group_size": measurements.GROUP_SIZE,
        "repetitions": measurements.REPETITIONS,
        "seed": measurements.SEED,
        "processes": measurements.describe_processes(),
        "limits": measurements.find_limits(),
        "turn_index": measurements.split_turn_index(),
        "exact": measurements.go_through_batches(),
        "sampled": measurements.sample_batches(),
    }


def measure_trainers() -> dict[str, Any]:
    """Compare the first gradient of every trainer, each in its environment."""
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        trainers = sorted(list_trainers())
        start([trainer_python(trainers[0]), "-c", MODEL, str(model)])
        for trainer in trainers:
            out = Path(folder) / f"{trainer}.json"
            worker = str(HERE / "first_gradients.py")
            start([trainer_python(trainer), worker, trainer, str(model), str(out)])
            measured.append(json.loads(out.read_text(encoding="utf-8")))
    return {"commit": provenance.commit(), "trainers": measured}


def start(command: list[str]) -> None:
    """Run a command; show its output where it fails."""
    done = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stderr}")


def table_of(estimator: str, episodes: int) -> str:
    """Return a table of one estimator and `reinforce`, on every process.

    Raises:
        GemError: there is no estimator of this name, or it cannot be loaded.
    """
    needs = estimator_needs(estimator)  # it is found as `compute_advantages` finds it
    cases = [Case("reinforce"), Case(estimator)]
    if needs.values:
        cases.append(Case(estimator, critic="zero"))
    rows = []
    for process in PROCESSES.values():
        measured = measurements.measure_at(list_trajectories(process), cases, episodes)
        for case, figures in zip(cases, measured, strict=True):
            names = ("bias", "angle", "noise", "batch_angle")
            cells = [f"{x:.3g} [{low:.3g}, {high:.3g}]" for x, low, high in map(figures.get, names)]
            rows.append((process.name, case.label, *cells))
    head = ("process", "estimator", "bias", "angle of the mean", "noise", "angle of one batch")
    return markdown_table(head, rows)


if __name__ == "__main__":
    sys.exit(main())
