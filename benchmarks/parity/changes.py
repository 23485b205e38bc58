"""Try a change of the source against every detector: ``python benchmarks/parity/changes.py``.

Runs what shows that five trainers train the same experiment, on this tree as it is, and says of
each detector whether it is green or red, with what differed first and the seconds. With ``--patch
FILE`` the patch is applied to a copy, and the detectors run there; this tree stays as it is. With
``--faults`` each fault of `source_faults.FAULTS` is put into a copy, one at a time, and
``source_faults.md`` has the results. Exit code 1 if a detector is red, or if a fault stays green.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from source_faults import FAULTS, Fault

from gem_compare.runner import trainer_python
from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = HERE / "source_faults.md"
RESULTS = HERE / "source_faults.json"
TRAINERS = ("trl", "oat", "rl2", "openrlhf", "verl")
NO_TESTS = 5
"""Exit code of pytest that collected no test, or left all out."""
DETECTORS: dict[str, tuple[str, ...]] = {
    "recorded runs": ("tests/contract/test_teacher_forced.py",),
    "first gradient": ("tests/contract/test_replay.py",),
    "turn rewards": ("tests/contract/test_turn_rewards.py",),
    "asynchronous": ("tests/contract/test_asynchronous.py",),
    "sampling": ("tests/contract/test_sampling_model.py",),
    "weights of the engine": ("tests/contract/test_families.py",),
    "resumed runs": ("tests/contract/test_stopping.py",),
}
"""What runs in each trainer's environment: name -> arguments of pytest."""
CORE: dict[str, tuple[str, ...]] = {
    "episode machine": ("tests/episodes/test_machine.py", "tests/episodes/test_tasks.py"),
    "estimators": ("tests/advantages",),
}
"""What needs no trainer."""
ENGINE = ("tests/engines/test_engine.py",)
"""The CPU engine's own tests, in TRL's environment."""


@dataclass(frozen=True)
class Found:
    """What a detector said.

    Attributes:
        trainer: in whose environment; "none" for the core.
        detector: its name.
        red: whether it failed.
        message: the first difference, "" where it is green.
        seconds: how long it took.
    """

    trainer: str
    detector: str
    red: bool
    message: str
    seconds: float

    def line(self) -> str:
        """Return one line for the terminal."""
        state = "RED  " if self.red else "green"
        return f"{state} {self.trainer}, {self.detector}, {self.seconds:.0f} s  {self.message}"


def run_detector(tree: Path, trainer: str, detector: str) -> Found:
    """Run a detector on ``tree`` up to its first failure.

    Raises:
        SystemExit: it has no test there, which must not count as red.
    """
    began = time.monotonic()
    if detector == "lockstep":
        command = [trainer_python("core"), "-m", "gem_core.cli", "compare", "--quick"]
        command += ["--out", str(tree / "build" / "lockstep")]
    else:
        python = trainer_python("core" if trainer == "none" else trainer)
        tests = {**DETECTORS, **CORE, "CPU engine": ENGINE}[detector]
        tests = tuple(test for test in tests if (tree / test.partition("::")[0]).exists())
        command = [python, "-m", "pytest", "-q", "-x", "--tb=short", "--slow"]
        command += ["--trainer", trainer, *tests]
    done = subprocess.run(
        command, cwd=tree, env=tree_environment(tree), capture_output=True, text=True, check=False
    )
    if done.returncode == NO_TESTS and detector != "lockstep":
        raise SystemExit(f"{trainer}, {detector}: no test ran, which is no detector: {done.stdout}")
    message = _first_difference(done.stdout + done.stderr) if done.returncode else ""
    return Found(trainer, detector, done.returncode != 0, message, time.monotonic() - began)


def tree_environment(tree: Path) -> dict[str, str]:
    """Return the environment in which ``tree`` is imported, with this checkout's interpreters."""
    paths = [str(tree), str(tree / "integrations")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return {**env, "GEM_CORE_ENVS": os.environ.get("GEM_CORE_ENVS") or str(ROOT / ".venvs")}


def _first_difference(output: str) -> str:
    """Return the first line that says what differed."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    marks = ("tokens differ at ", "by more than rounding")
    differing = [line for line in lines if any(mark in line for mark in marks)]
    return next(iter([*errors, *differing, *lines[-1:]]), "no output")[:300]


def copy_of(target: Path) -> Path:
    """Copy the working tree to ``target``, without what git ignores and benchmarks' results."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    for name in (os.fsdecode(name) for name in names if name):
        is_result = name.startswith("benchmarks/") and "/results/" in name
        if (ROOT / name).is_file() and not is_result:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def detectors_of(trainers: Sequence[str]) -> list[tuple[str, str]]:
    """Return every detector, the fast ones first."""
    pairs = [("none", name) for name in CORE]
    if "trl" in trainers:
        pairs.append(("trl", "CPU engine"))
    pairs += [(trainer, name) for name in DETECTORS for trainer in trainers]
    return [*pairs, ("none", "lockstep")]


def try_tree(tree: Path, trainers: Sequence[str]) -> int:
    """Run every detector on ``tree``; return 1 if one is red."""
    red = 0
    for trainer, detector in detectors_of(trainers):
        found = run_detector(tree, trainer, detector)
        print(found.line(), flush=True)
        red += found.red
    print(f"{red} detectors are red." if red else "All detectors are green.")
    return int(red > 0)


def try_patch(patch: Path, trainers: Sequence[str]) -> int:
    """Run every detector on a copy with ``patch``."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of(Path(folder))
        apply = ["git", "apply", "--whitespace=nowarn", str(patch.resolve())]
        subprocess.run(apply, cwd=tree, check=True)
        return try_tree(tree, trainers)


def try_fault(fault: Fault) -> Found:
    """Put ``fault`` into a copy; return the first of its detectors that is red, else the last."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of(Path(folder))
        fault.put_into(tree)
        for detector in fault.detectors:
            found = run_detector(tree, fault.trainer, detector)
            if found.red:
                break
    return found


def try_faults(names: Sequence[str], trainers: Sequence[str]) -> int:
    """Try the faults and print each result; write the page after a run of all of them."""
    chosen = [f for f in FAULTS if (not names or f.name in names) and f.trainer in trainers]
    commit = provenance.commit()  # of the code that runs, not of a later one
    green = 0
    for fault in chosen:
        found = try_fault(fault)
        print(f"{fault.name}: {found.line()}", flush=True)
        green += not found.red
        _keep(fault, found, commit)
    return int(green > 0)


def _keep(fault: Fault, found: Found, commit: str | None) -> None:
    """Put a result beside those that are known, and write the page from them."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[f"{fault.name} / {fault.trainer}"] = {
        **asdict(found),
        "seconds": round(found.seconds),
        "commit": commit,
    }
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(known), encoding="utf-8")


def page(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of the faults in the source; those that were not tried yet are named."""
    lines = ["| fault | trainer | found by | seconds | what it says |", "|---|---|---|---|---|"]
    waiting = []
    for fault in FAULTS:
        found = known.get(f"{fault.name} / {fault.trainer}")
        if found is None:
            waiting.append(f"- {fault.name}, {fault.trainer}")
            continue
        by = found["detector"] if found["red"] else "**stays green**"
        said = (found["message"] if found["red"] else fault.why_green).replace("|", "\\|")
        lines.append(
            f"| {fault.name} | {fault.trainer} | {by} | {found['seconds']} | {said[:200]} |"
        )
    if waiting:
        lines += ["", "Not tried yet:", "", *waiting]
    head = (
        "# Faults in the source\n\nGenerated by `python benchmarks/parity/changes.py --faults`; do "
        "not edit.\n\nEach fault of `source_faults.py` is put into a copy of the tree, alone, and "
        "the detectors run\nthere up to the first that is red. Seconds are of that detector, on "
        "two busy cores.\n"
    )
    return "\n".join([head, *lines, ""])


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", type=Path, help="a diff, applied to a copy of the tree")
    parser.add_argument("--faults", nargs="*", metavar="NAME", help="try these faults; none = all")
    parser.add_argument("--trainers", nargs="+", default=["none", *TRAINERS])
    provenance.add_option(parser)
    arguments = parser.parse_args()
    if arguments.faults is not None:
        provenance.check_option(parser, arguments)
        return try_faults(arguments.faults, arguments.trainers)
    trainers = [name for name in arguments.trainers if name != "none"]
    if arguments.patch is not None:
        return try_patch(arguments.patch, trainers)
    return try_tree(ROOT, trainers)


if __name__ == "__main__":
    sys.exit(main())
