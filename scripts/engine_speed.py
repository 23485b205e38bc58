"""The section of docs/engines.md about speed, from ``benchmarks/engines/results/speed-*.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gem_core.results import markdown_table

ENGINES = ("gem_core", "transformers", "vllm")
COLUMNS = (
    "turn",
    "requests",
    "CPU engine, tokens/s",
    "transformers",
    "vLLM",
    "CPU engine / the faster of both",
    "CPU engine: time until the first token",
)
HEAD = """\
## Speed with a pretrained model

Tokens that an engine draws in a second, the time for the prompt included, with Gemma 3 270M on a
CPU: prompts of 100 random tokens, no two alike, 16 tokens drawn for each by all three; then the
second turn of the same conversations, longer by what was drawn and 20 tokens. The CPU engine keeps
what it computed of the first turn. vLLM keeps whole blocks, of 128 tokens by default on a CPU, and
so it computes these short conversations again, as transformers does. The CPU engine and vLLM report
log-probabilities, transformers does not. vLLM runs without compiled graphs, as in all runs of this
page: the first call would wait for minutes for a compiler. By `benchmarks/engines/speed.py`.

The CPU engine is slower at a single request, as it fills the batch up to eight rows: so the draws
of a request do not depend on what runs beside it. At 32 requests the first turn is slower, too, and
most of its time is the prompts'; it is the second turn that makes up for it."""


def speed(results: Path) -> str:
    """Return the section; empty where nothing was measured."""
    paths = sorted(results.glob("speed-*.json"))
    if not paths:
        return ""
    parts = [HEAD]
    for path in paths:
        parts += one_model(json.loads(path.read_text(encoding="utf-8")))
    return "\n\n".join(part.strip() for part in parts)


def one_model(data: dict[str, Any]) -> list[str]:
    """Return the table of one vocabulary and dtype."""
    rows = []
    for cell in data["cells"]:
        speeds = cell["tokens_per_s"]
        ratio = speeds["gem_core"] / max(speeds[engine] for engine in ENGINES[1:])
        first = cell["first_token"]
        rows.append(
            (
                cell["turn"],
                str(cell["batch"]),
                *(f"{speeds[engine]:.1f}" for engine in ENGINES),
                f"{ratio:.2f}",
                "" if first is None else f"{first:.0%}",
            )
        )
    versions = ", ".join(f"{name} {number}" for name, number in data["versions"].items())
    return [
        f"A vocabulary of {data['vocabulary']:,} tokens, {data['dtype']}:",
        markdown_table(COLUMNS, rows),
        f"Medians of {data['rounds']} rounds; {data['processor']}, {data['cores']} cores; "
        f"{versions}; commit `{data['commit'][:9]}`.",
    ]
