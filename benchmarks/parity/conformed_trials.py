"""Trials of `conformed.py`: one call of ``gem-core conform`` each, with a fault or without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from changes import copy_of, tree_environment
from faults import FAULTS, changed_model
from run import QUIET
from source_faults import FAULTS as SOURCE_FAULTS
from source_faults import Fault as SourceFault

from gem_compare.runner import trainer_python
from gem_core.runs import provenance

WORKER = Path(__file__).with_name("conformed.py")
CHECKS: dict[str, tuple[str, ...]] = {
    "recorded runs": ("recorded-runs",),
    "weights of the engine": ("lockstep",),
    "sampling": ("sampling",),
    "turn rewards": ("turn-rewards",),
    "asynchronous": ("recorded-runs",),
}
"""Detector of a fault in the source -> checks of the kit, until one fails."""
CASES = {
    "LoRA's alpha is its rank": "LoRA",
    "KL term times the ratio": "large KL term",
    "KL term against the policy of the step, not the initial one": "large KL term",
    "KL sign": "large KL term",
    "entropy sign": "large entropy bonus, mean of sequences",
    "KL term left out": "large KL term",
}
"""Fault -> the recorded run that must find it, else that of `faults.FAULTS`, or `rebn`."""
RECIPES = {
    "KL sign": ("algorithm.kl_coef=-2.0",),
    "entropy sign": ("algorithm.entropy_coef=-20.0",),
}
"""Fault -> what it changes in a recipe where that follows from the recorded run, else that of
`faults.FAULTS`."""
CORE_FAULTS = {
    "a truncated turn's reward goes to the turn before": "turn-rewards",
    "every step plays the tasks of the first": "result",
}
"""Fault in the core -> the check that finds it with any trainer."""


@dataclass(frozen=True)
class Trial:
    """One call of ``gem-core conform``.

    Attributes:
        fault: its name; "" for none.
        trainer: under test.
        check: the last check that ran.
        case: of the check; "" for all.
        code: exit code of the command.
        status: of the check.
        reason: what the check says.
        seconds: it took, the command's start included where it is a process of its own.
        commit: of the code.
    """

    fault: str
    trainer: str
    check: str
    case: str
    code: int
    status: str
    reason: str
    seconds: float
    commit: str

    @property
    def found(self) -> bool:
        """Whether the check failed, and the command said so."""
        return self.status == "failed" and self.code == 1

    def line(self) -> str:
        """Return one line for the terminal."""
        what = self.fault or "no fault"
        return f"{self.trainer}, {what}: {self.check} {self.status}, {self.seconds:.0f} s"


# -- faults in a trainer's path -------------------------------------------------------------------


def in_the_path(trainer: str, only: Sequence[str] | None) -> Iterator[Trial]:
    """Yield the trials of `faults.FAULTS` in one process of the trainer's environment."""
    names = [name for name, fault in FAULTS.items() if trainer in fault.trainers]
    names = [name for name in names if not only or name in only]
    if not names:
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "trials.jsonl"
        command = [trainer_python(trainer), str(WORKER), "--worker", trainer]
        process = subprocess.Popen(
            [*command, json.dumps(names), str(out)],
            env={**os.environ, **QUIET},
            stdout=subprocess.DEVNULL,
        )
        if process.wait():
            raise SystemExit(f"The worker of {trainer} ended with exit code {process.returncode}.")
        for line in out.read_text(encoding="utf-8").splitlines():
            yield Trial(**json.loads(line))


def work(trainer: str, names: str, out: str) -> None:
    """Run the trials of one trainer, the one without a fault first, and write each as a line."""
    wanted = json.loads(names)
    case_of = {name: CASES.get(name, FAULTS[name].case) for name in wanted}
    cases = sorted(set(case_of.values()))
    with open(out, "w", encoding="utf-8") as file:
        for name, of_trial in [("", cases), *((name, [case]) for name, case in case_of.items())]:
            with tempfile.TemporaryDirectory() as folder, fault_in_the_path(name, trainer, folder):
                trial = conform_here(name, trainer, of_trial, folder)
            print(json.dumps(asdict(trial)), file=file, flush=True)
            print(trial.line(), file=sys.stderr, flush=True)


@contextmanager
def fault_in_the_path(name: str, trainer: str, folder: str) -> Iterator[None]:
    """Break what the trainer's replay gets, or the trainer's code; the reference stays whole.

    Raises:
        RecipeError: the adapter refuses the recipe with the fault, which is not put in then.
    """
    from gem_core.errors import RecipeError
    from gem_parity.faults import change_recipe
    from gem_parity.replays import load_replay

    if not name:
        yield
        return
    fault = FAULTS[name]
    module = load_replay(trainer)
    original = module.replay_run
    refusals: list[RecipeError] = []

    def broken(recipe: Any, batches: Any, model_dir: str, on_step: Any) -> None:
        if fault.data:
            fault.data(batches)
        source = changed_model(fault, model_dir, folder)
        try:
            changed = change_recipe(recipe, RECIPES.get(name, fault.recipe))
            original(changed, batches, source, on_step)
        except RecipeError as error:
            refusals.append(error)
            raise

    in_code = fault.code(trainer) if fault.code else nullcontext()
    with patch.object(module, "replay_run", broken), in_code:
        yield
    if refusals:
        raise refusals[0]


def conform_here(name: str, trainer: str, cases: Sequence[str], folder: str) -> Trial:
    """Run the recorded runs of the kit in this process, by the command's own function."""
    from gem_core.cli import main as gem_core

    out = Path(folder) / "out"
    began = time.monotonic()
    command = ["conform", trainer, "--only", "recorded-runs", "--case", *cases, "--out", str(out)]
    code = gem_core(command)
    return _trial(name, trainer, cases, out, code, time.monotonic() - began)


def _trial(
    name: str, trainer: str, cases: Sequence[str], out: Path, code: int, seconds: float
) -> Trial:
    """Read the report of one check."""
    report = json.loads((out / "conformance.json").read_text(encoding="utf-8"))
    (check,) = report["checks"]
    return Trial(
        fault=name,
        trainer=trainer,
        check=check["name"],
        case=", ".join(cases),
        code=code,
        status=check["status"],
        reason=check["reason"],
        seconds=round(seconds, 1),
        commit=provenance.commit() or "",
    )


# -- faults in the source -------------------------------------------------------------------------


def in_the_source(trainer: str, only: Sequence[str] | None) -> Iterator[Trial]:
    """Yield the trials of `source_faults.FAULTS`, after those without a fault."""
    wanted = [fault for fault in SOURCE_FAULTS if not only or fault.name in only]
    core = [f for f in wanted if f.trainer == "none" and f.name in CORE_FAULTS]
    own = [fault for fault in wanted if fault.trainer == trainer]
    own += [f for f in core if f.name not in {fault.name for fault in own}]
    plans = [(fault, *_check_of(fault)) for fault in own]
    for check, case in sorted({(check, case) for _, check, case in plans}):
        yield conform_copy(None, trainer, check, case)
    for fault, check, case in plans:
        yield conform_copy(fault, trainer, check, case)


def _check_of(fault: SourceFault) -> tuple[str, str]:
    """Return the check of the kit that must find a fault, and the case of the check."""
    if fault.trainer == "none":
        return CORE_FAULTS[fault.name], ""
    if fault.detectors[0] == "asynchronous":
        return "recorded-runs", "rebn, asynchronous"
    (check,) = CHECKS[fault.detectors[0]]
    return check, CASES.get(fault.name, "rebn") if check == "recorded-runs" else ""


def conform_copy(fault: SourceFault | None, trainer: str, check: str, case: str) -> Trial:
    """Run one check of the kit on a copy of the tree, with a fault or without."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of(Path(folder) / "tree")
        if fault is not None:
            fault.put_into(tree)
        out = Path(folder) / "out"
        command = [trainer_python(trainer), "-m", "gem_core.cli", "conform", trainer]
        command += ["--only", check, "--out", str(out), *(["--case", case] if case else [])]
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=tree, env=tree_environment(tree), capture_output=True, text=True
        )
        if not (out / "conformance.json").exists():
            raise SystemExit(f"{' '.join(command)} wrote no report:\n{done.stdout}{done.stderr}")
        seconds = time.monotonic() - began
        name = fault.name if fault else ""
        return _trial(name, trainer, [case] if case else [], out, done.returncode, seconds)
