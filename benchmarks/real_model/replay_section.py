"""The section about recorded runs of a pretrained model, on the page of `real_model_page`."""

from __future__ import annotations

from pathlib import Path

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
    "equal",
)
TEXT = """\
## A recorded run, beside the reference

By `benchmarks/real_model/replay.py` at commit `{commit}`: the run `rebn` of
[benchmarks/parity](../parity/README.md), {steps} training steps of six updates each with Gemma 3
270M, its vocabulary cut to {tokens} tokens, through the loss, gradients, clipping, optimizer and
export of each trainer.
The reference is in plain PyTorch, in float64. The bound is 1e-4 after every step.
"""


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
                "no: " + "; ".join(result["faults"]) if result["faults"] else "yes",
            )
        )
    tokens = data["model"]["vocabulary"]["tokens"]
    commit = provenance.short(data["commit"])
    text = TEXT.format(commit=commit, steps=data["steps"], tokens=tokens)
    return [text, markdown_table(COLUMNS, rows)]
