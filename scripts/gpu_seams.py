#!/usr/bin/env python3
"""Writes ``docs/gpu_seams.md``: what each adapter uses of its trainer, and what of it was run.

    python scripts/gpu_seams.py                 # the page, and the table of docs/gpu.md
    python scripts/gpu_seams.py --record trl    # runs the adapter in .venvs/trl, then the same
    python scripts/gpu_seams.py --read trl      # new uses count as only read; nothing runs

The uses are those of ``scripts/drift.py``. The records are ``scripts/drift_radar/ran.json``; a use
that has none is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from drift_radar.ran import ELSEWHERE, READ, REHEARSED, RUN, STATES, Uses, executed, states, uses

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "scripts" / "drift_radar" / "ran.json"
PAGE = ROOT / "docs" / "gpu_seams.md"
GPU_PAGE = ROOT / "docs" / "gpu.md"
MARKS = ("<!-- seams: made by scripts/gpu_seams.py -->", "<!-- end seams -->")
TITLES = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "oat": "Oat", "rl2": "RL2"}
UNKNOWN = "not recorded yet"
"""What stands for a trainer whose tests were recorded and no training."""
TRAINING = (
    "guess-the-number-easy", "--profile", "tiny", "--set", "train.steps=2",
    "--set", "batch.episodes=16", "--set", "model.tiny.warm_start_steps=20",
    "--set", "eval.episodes=4", "--set", "train.save_every=1",
)  # fmt: skip
"""The training that is run here: two steps, with checkpoints and evaluations."""
TESTS = {
    "trl": "config devices serving servers updates vllm critic lora support",
    "verl": "advantages critic kl_term metrics plugin rollout support weights",
    "openrlhf": "advantages batches compat executor kl_term metrics model support update",
    "oat": "advantages config guards layout lora loss metrics rollout rows update",
    "rl2": "checkpoint compat config critic metrics native_keys rollout router support turns",
}
"""Trainer -> its tests in ``tests/integrations`` that are a rehearsal: those of one process."""
HEAD = """\
# What was run of each adapter

<!-- Written by scripts/gpu_seams.py: change that, not this file. -->

What a GPU has run is on [another page](gpu.md#what-was-run-on-a-gpu).
An adapter uses functions, classes and fields of its trainer's inside. Here is each of them, with
the most that was done with a line of the adapter that uses it, on a CPU and with the pinned release
of the trainer:

- *run here*: it ran in a whole training with the profile `tiny`, where engines and CUDA's kernels
  have stand-ins;
- *rehearsed*: it ran in the adapter's own tests only, in which GPUs are faked, or a part of the
  trainer is called alone or replaced;
- *only read*: neither. The trainer's source was read beside it.

That a line ran says that the trainer has what it uses, not that it does the same on a GPU. Native
keys are not in the list: `tests/contract/test_paper_grid.py` gives those of the profile `paper` to
each trainer's own configuration code. What only the stand-ins for CPUs use is left out. A name
without dots is one whose owner the source does not tell. Not all tests were recorded, at most those
of `TESTS` in the script, so that lines may have run without a mark.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, after a record if one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", choices=TITLES, action="append", default=[])
    parser.add_argument("--read", choices=TITLES, action="append", default=[])
    options = parser.parse_args(arguments)
    records = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}
    for name in options.record:
        records[name] = record(name)
    for name in options.read:
        records[name] = of_release(name, {p: records[name].get(p, READ) for p in uses(name)})
    if options.record or options.read:
        text = json.dumps(records, indent=1, sort_keys=True) + "\n"
        RECORDS.write_text(text, encoding="utf-8")
    PAGE.write_text(page(records), encoding="utf-8")
    GPU_PAGE.write_text(with_table(GPU_PAGE.read_text(encoding="utf-8"), records), encoding="utf-8")
    return 0


def record(name: str) -> dict[str, str]:
    """Train with an adapter and run its tests; return the state of each use."""
    python = ROOT / ".venvs" / name / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="gem-seams-") as folder:
        run = Path(folder) / "run"
        train = ["-m", "gem_core.cli", "train", *TRAINING, "--trainer", name, "--run", str(run)]
        tests = [f"tests/integrations/{name}/test_{test}.py" for test in TESTS[name].split()]
        pytest = ["-m", "pytest", "-q", "--trainer", name, *tests]
        lines = [follow(name, [str(python), *command]) for command in (train, pytest)]
    return of_release(name, states(uses(name), *lines))


def of_release(name: str, found: dict[str, str]) -> dict[str, str]:
    """Return the states, with what the trainer's pinned release does not have set apart."""
    from drift import pinned_version
    from drift_radar.compare import follows
    from drift_radar.release import Release, download

    distribution = import_module(f"gem_{name}").TRAINER.distribution
    with tempfile.TemporaryDirectory(prefix="gem-wheel-") as folder:
        file = download(f"{distribution}=={pinned_version(name, distribution)}", Path(folder) / "w")
        release = Release(file, Path(folder) / "r")
        return {
            path: state if follows(path, release) else ELSEWHERE for path, state in found.items()
        }


def follow(name: str, command: Sequence[str]) -> set[tuple[str, int]]:
    """Run a program; return the lines of the adapter that ran, by file.

    Raises:
        SystemExit: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="gem-lines-") as folder:
        own = {
            "PYTHONPATH": str(ROOT / "scripts" / "seam_lines"),
            "GEM_CORE_SEAM_LINES": folder,
            "GEM_CORE_SEAM_SOURCE": f"{ROOT / 'integrations' / f'gem_{name}'}{os.sep}",
            "CUDA_VISIBLE_DEVICES": "",
        }
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **own})
        if done.returncode:
            raise SystemExit(f"{name}: a program ended with {done.returncode}: see above")
        return executed(Path(folder))


def page(records: dict[str, dict[str, str]]) -> str:
    """Return the page.

    Raises:
        SystemExit: a use of an adapter has no record, or a record is of no use.
    """
    parts = [HEAD + table(records)]
    for name, title in TITLES.items():
        found = uses(name)
        require(name, found, records[name])
        parts.append(f"\n## {title}\n")
        for state in STATES:
            by_file: dict[str, list[str]] = {}
            for path, places in found.items():
                if records[name][path] == state:
                    by_file.setdefault(places[0].file, []).append(f"`{path}`")
            parts.append(f"\n### {title}: {state}\n\n")
            rows = [f"- `{file}`: {', '.join(sorted(by_file[file]))}\n" for file in sorted(by_file)]
            parts += rows or [f"- {UNKNOWN if state == RUN else 'nothing'}\n"]
    return "".join(parts)


def table(records: dict[str, dict[str, str]]) -> str:
    """Return the numbers of all trainers."""
    rows = [f"| trainer | uses | {' | '.join(STATES)} |", "|---|---|---|---|---|"]
    for name, title in TITLES.items():
        found = [state for state in records[name].values() if state != ELSEWHERE]
        run = found.count(RUN) or UNKNOWN
        numbers = [len(found), run, found.count(REHEARSED), found.count(READ)]
        rows.append(f"| {title} | {' | '.join(map(str, numbers))} |")
    return "\n".join(rows) + "\n"


def with_table(text: str, records: dict[str, dict[str, str]]) -> str:
    """Return ``docs/gpu.md`` with its table of uses."""
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{table(records)}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def require(name: str, found: Uses, known: dict[str, str]) -> None:
    """Raise where uses and records are not of the same things."""
    new, old = sorted(found.keys() - known.keys()), sorted(known.keys() - found.keys())
    if new or old:
        what = f"without a record {', '.join(new) or '-'}; gone {', '.join(old) or '-'}"
        raise SystemExit(
            f"gem_{name} uses other things of its trainer than were recorded: {what}. Run python "
            f"scripts/gpu_seams.py --record {name}, or --read {name}, and commit what it writes."
        )


if __name__ == "__main__":
    sys.exit(main())
