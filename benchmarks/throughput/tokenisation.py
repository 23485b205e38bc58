"""Tokenisation per turn: the append-only context, compared with rendering the whole history.

    .venvs/trl/bin/python benchmarks/throughput/tokenisation.py

The same episode of many turns is built twice, turn by turn: by the episode machine, which tokenises
each observation once, and by applying the chat template to all messages and tokenising the result,
as a trainer does that stores messages. The CPU seconds of both are measured alternately in one
process and written to ``tokenisation.json`` and, as a table, to ``tokenisation.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import tokenizers
import transformers

from gem_core.env.interface import Env
from gem_core.episodes.context import Context, HFTokenizer, get_template
from gem_core.episodes.data import Completion
from gem_core.episodes.machine import EpisodeMachine
from gem_core.results import markdown_table
from gem_core.runs import provenance
from gem_core.runs.generation_config import read_eos_ids
from gem_core.runs.hardware import describe_machine
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path

HERE = Path(__file__).resolve().parent
TEXT = "the agent opens a drawer and finds nothing but paper clips and a faded map of town"
WORDS = TEXT.split()
MARKS = (1, 10, 25, 50, 100, 150, 200)


class Long(Env):
    """An episode of many turns; every observation is a new text of forty words."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns
        self.made = 0

    def _text(self) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(40)) + f" {self.rng.random():.6f}"

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.made = 0
        return self._text(), {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.made += 1
        return self._text(), 0.0, self.made >= self.turns, False, {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument(
        "--episodes", type=int, default=5, help="number of episodes, of which the median is taken"
    )
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    machine = describe_machine()
    recipe = load_recipe("guess-the-number-easy", "tiny", ["model.tiny.warm_start_steps=0"])
    hf = transformers.AutoTokenizer.from_pretrained(model_path(recipe))
    pairs = [episode(hf, arguments.turns, seed) for seed in range(arguments.episodes)]
    columns = [[median(p[k][t] for p in pairs) for t in range(arguments.turns)] for k in (0, 1)]
    result = {
        "turns": arguments.turns,
        "episodes": arguments.episodes,
        "append_us": [round(1e6 * x, 1) for x in columns[0]],
        "render_again_us": [round(1e6 * x, 1) for x in columns[1]],
        "versions": {m.__name__: m.__version__ for m in (tokenizers, transformers)},
        "python": platform.python_version(),
        "processor": machine["processor"],
        "commit": machine["commit"],
    }
    text = json.dumps(result) + "\n"
    (HERE / "tokenisation.json").write_text(text, encoding="utf-8")
    (HERE / "tokenisation.md").write_text(page(result), encoding="utf-8")
    print(page(result))
    return 0


def episode(hf: Any, turns: int, seed: int) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of each turn's tokenisation: append-only, and of all messages."""
    template = get_template("chat", hf)
    tokenizer = HFTokenizer(hf, template, read_eos_ids(hf))
    machine = EpisodeMachine(Long(turns), Context(template, tokenizer), seed=seed)
    rng = random.Random(seed)
    append = []
    again = []
    prompt = machine.start()
    while prompt is not None:
        action = hf.encode(f"go {rng.random():.4f}", add_special_tokens=False)
        began = time.process_time()
        messages = list(machine.messages)
        again_ids = hf.encode(
            hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
            add_special_tokens=False,
        )
        again.append(time.process_time() - began)
        assert len(again_ids) >= len(prompt) > 0
        began = time.process_time()
        prompt = machine.feed(Completion([*action, hf.eos_token_id]))
        append.append(time.process_time() - began)
    return append, again


def page(result: dict[str, Any]) -> str:
    marks = [m for m in MARKS if m <= result["turns"]]
    rows = []
    for mark in marks:
        around = slice(max(0, mark - 3), mark + 2)
        a = median(result["append_us"][around])
        b = median(result["render_again_us"][around])
        rows.append((str(mark), f"{a:,.0f}", f"{b:,.0f}", f"{b / a:.1f}"))
    total = sum(result["render_again_us"]) / sum(result["append_us"])
    rows.append(("all", "", "", f"{total:.1f}"))
    head = ("turn", "append-only, µs", "render again, µs", "ratio")
    versions = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
    return (
        "# Tokenisation per turn\n\n"
        "Generated by `python benchmarks/throughput/tokenisation.py`; do not edit.\n\n"
        f"One episode of {result['turns']} turns, with about forty words of observation per turn. "
        "Append-only is the whole `EpisodeMachine.feed`: decoding the action, the step of the "
        "environment, tokenising the new observation. Render again is only the chat template over "
        "all messages and the tokenisation of its text. CPU microseconds, both measured "
        f"alternately in one run, median of {result['episodes']} episodes and of five "
        "neighbouring turns.\n\n"
        f"{markdown_table(head, rows)}\n"
        f"{result['processor']}, Python {result['python']}, {versions}, commit "
        f"`{provenance.short(result['commit'])}`.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
