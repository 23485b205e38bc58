#!/usr/bin/env python3
"""Write the built-in samples of the data-set environments: ``python scripts/make_samples.py``.

All items are made by the modules of ``scripts/samples``, by hand or by rule; none comes from a data
set. The files are committed, and their hashes are the data revisions of the samples, so that a
change here is a change of the tasks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from samples import (
    almanac,
    digit_sums,
    formulas,
    geometry,
    ledger,
    lists,
    mathematics,
    programs,
    questions,
    remainders,
    rules,
    shop,
)

OUT = Path(__file__).resolve().parent.parent / "gem_core" / "envs" / "samples"
CORPORA = OUT.parent / "data" / "corpora"


def main() -> None:
    """Write all samples."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="directory of the samples")
    out = parser.parse_args().out
    out.mkdir(exist_ok=True)
    CORPORA.mkdir(exist_ok=True)
    # Both come from one stream without repetition, so that they have no problem in common.
    problems = list(islice(mathematics.problems(1), 100))
    write(out / "math.jsonl", problems[:60])
    write(out / "math-eval.jsonl", problems[60:])
    write(out / "remainders.jsonl", remainders.questions(5, 1500))
    write(out / "digit_sums.jsonl", digit_sums.questions(11, 1500))
    write(out / "geometry.jsonl", geometry.questions(3, 12))
    write(out / "code.jsonl", programs.tasks(0, 2))
    write(out / "code-eval.jsonl", programs.tasks(1, 2))
    write(out / "formulas.jsonl", formulas.tasks(7, 400))
    write(out / "lists.jsonl", lists.tasks(13))
    write(out / "qa.jsonl", questions.training())
    write(out / "qa-eval.jsonl", questions.evaluation())
    write(out / "almanac.jsonl", almanac.questions())
    write(out / "auction.jsonl", almanac.auction())
    write(out / "ledger.jsonl", ledger.questions())
    write(CORPORA / "almanac.jsonl", almanac.documents())
    write(CORPORA / "ledger.jsonl", ledger.documents())
    write(out / "shop.jsonl", shop.products())
    for depth in (0, 1, 2, 3, 5):
        write(out / f"logic-d{depth}.jsonl", rules.statements(depth, 4, 16))


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSON Lines."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path.stem}: {len(lines)} items")


if __name__ == "__main__":
    main()
