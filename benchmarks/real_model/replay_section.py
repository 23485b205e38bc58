"""The section about recorded runs of a pretrained model, on the page of `real_model_page`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core.results import markdown_table
from gem_core.runs import provenance
from gem_core.runs.directory import files as run_files

REPLAY = Path(__file__).resolve().parent / "results" / "replay.json"
"""What ``replay.py`` measured."""
COLUMNS = (
    "trainer",
    "transformers",
    "weights, largest relative L2 difference of a step",
    "largest difference of a weight at the end",
    "the weights moved by",
    "difference of that",
    "equal",
)
TEXT = """\
## A recorded run, beside the reference

By `benchmarks/real_model/replay.py` at commit `{commit}`: the run `rebn` of
[benchmarks/parity](../parity/README.md), {steps} training steps of six updates each with Gemma 3
270M, its vocabulary cut to {tokens} tokens, through the loss, gradients, clipping, optimizer and
export of each trainer, with {settings}.
The reference is in plain PyTorch, in float64. The bounds: weights 1e-4 after every step, and 5% of
what they moved; advantages 1e-4, log-probabilities before each step 1e-3, norm of each gradient
0.1%. (Trainers divide the loss and decay norms in their own ways, which the reference follows, so
that they move by different distances.)
"""


def share_of_movement(result: dict[str, Any]) -> float:
    """Return the largest difference of a step's weights over the distance that they moved."""
    return float(max(result["policy"]["relative"]) / result["moved"])


def replay_section() -> list[str]:
    """Return the section, and nothing where nothing was measured."""
    if not REPLAY.exists():
        return []
    data = run_files.read_object(REPLAY)
    rows = []
    for result in data["trainers"]:
        last = result["policy"]["last"]
        rows.append(
            (
                f"{result['trainer']} {result['version']}",
                result["environment"]["versions"]["transformers"],
                f"{max(result['policy']['relative']):.1e}",
                f"{last['largest']:.1e} in `{last['name']}`",
                f"{result['moved']:.1e}",
                f"{share_of_movement(result):.2%}",
                "no: " + "; ".join(result["faults"]) if result["faults"] else "yes",
            )
        )
    tokens = data["model"]["vocabulary"]["tokens"]
    commit = provenance.short(data["commit"])
    settings = ", ".join(f"`{setting}`" for setting in data["settings"])
    text = TEXT.format(commit=commit, steps=data["steps"], tokens=tokens, settings=settings)
    return [text, markdown_table(COLUMNS, rows)]
