"""Tokens per second of the CPU engine, transformers and vLLM's CPU build, with Gemma 3 270M.

    gem-core model get gemma-3-270m --trim-vocabulary chain-sum --profile gemma   # prints FOLDER
    python scripts/make_env.py trl-vllm
    .venvs/core/bin/python benchmarks/engines/speed.py --model FOLDER --dtype float32 bfloat16
    python scripts/engine_results.py                                              # the page

The three take turns in one process, so that noise of the machine affects all of them. Each answers
prompts of 100 random tokens with 16 more, and then a second turn: the same text, the answers and 20
tokens. Before each round what was kept of prompts is forgotten, as after a training step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import HERE, RESULTS, ROOT, engine_environment

from gem_core.policies.models.files import ORIGIN
from gem_core.runs import provenance

VOCABULARY = 262_144
"""Of the model, where it was not cut."""


def main() -> int:
    """Measure what is asked for, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder of `gem-core model`")
    parser.add_argument("--dtype", nargs="+", default=["float32"], help="(default: float32)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    for dtype in arguments.dtype:
        print(measure(arguments.model, dtype, arguments.rounds))
    return 0


def measure(model: Path, dtype: str, rounds: int) -> Path:
    """Measure the engines in a process of the environment that has vLLM; return the result."""
    commit = provenance.commit()
    origin = json.loads((model / ORIGIN).read_text(encoding="utf-8"))
    python = ROOT / ".venvs" / "trl-vllm" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        environment = engine_environment(Path(folder) / "site", "trl")
        cores = str(len(os.sched_getaffinity(0)))
        environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": cores}
        words = [str(HERE / "speed_engines.py"), str(model), dtype, str(rounds), str(out)]
        subprocess.run([str(python), *words], env=environment, check=True)
        figures = json.loads(out.read_text(encoding="utf-8"))
    tokens = origin.get("vocabulary", {}).get("tokens", VOCABULARY)
    data = {"commit": commit, "model": origin["model"], "vocabulary": tokens, **figures}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"speed-{tokens}-{dtype}.json"
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
