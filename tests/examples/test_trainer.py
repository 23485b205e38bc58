"""The example trainer passes every check of the kit, and with a fault in it the right one fails."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gem_conform.checks import CHECKS

from ..plain_trainer import Fault, conform

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 100
"""Of a file: an example is read."""


def test_what_needs_no_run_passes(plain):
    names = ("declaration", "keys", "values", "unknown-keys", "turn-rewards", "gradient", "refusal")
    found = plain("--only", *names)
    assert found.code == 0, found.output
    assert [row["status"] for row in found.report["checks"]] == ["passed"] * len(names)


@pytest.mark.slow
def test_every_check_passes(plain):
    """Four minutes: most are recorded runs, beside the reference."""
    found = plain()
    assert found.code == 0, found.output
    assert [(row["name"], row["status"]) for row in found.report["checks"]] == [
        (name, "passed") for name in CHECKS
    ]
    assert "refused by name: " in found.outcome("recorded-runs")[1]
    assert "3 steps, token for token" in found.outcome("lockstep")[1]


ROWS = Fault("rows.py", "per_turn[first[number] + turn]", "per_turn[first[number]]")
FAULTS = {
    "declaration": (
        "declaring it imports: ",
        Fault(
            "__init__.py",
            "from gem_core.runs.trainers",
            "import torch\nfrom gem_core.runs.trainers",
        ),
    ),
    "turn-rewards": ("rewards [1.0, 2.0, 3.0] arrived as [1.0, 1.0, 1.0]", ROWS),
    "gradient": (
        "rebn / token: gradient norm off",
        Fault("learner.py", "of_row.sum().clamp(min=1)", "mask.numel()"),
    ),
    "recorded-runs": (
        "learning rate of update",
        Fault("learner.py", "left = (total - self.updates)", "left = (total - self.updates - 1)"),
    ),
    "injected-faults": (
        "the replay does not show: ['gamma ignored'",
        Fault(
            "replay.py",
            "    learner = _learner(recipe, model_dir)\n    on_step(0",
            "    from gem_core.runs.recipe.load import override\n"
            "    recipe = override(recipe, ['algorithm.gamma=0.9'])\n"
            "    learner = _learner(recipe, model_dir)\n    on_step(0",
        ),
    ),
    "refusal": (
        "exit code 1",
        Fault(
            "config.py", 'raise RecipeError(f"trainer.plain.', 'raise ValueError(f"trainer.plain.'
        ),
    ),
    "result": (
        "metrics missing in step 1: ['time/step']",
        Fault("launch.py", '        times["time/step"] = ended - began\n', ""),
    ),
    "repeat": (
        "not equal: ['metrics']",
        Fault(
            "learner.py",
            '"grad_norm": sum(norms) / len(norms)',
            '"grad_norm": sum(norms) + __import__("time").time()',
        ),
    ),
    "sampling": (
        "with top_k = 3, by inf",
        Fault("launch.py", "**sampling, top_k=recipe.sampling.top_k)", "**sampling)"),
    ),
    "lockstep": ("differs from the reference", ROWS),
    "resume": (
        "the resumed run differs from a whole one",
        Fault("launch.py", 'learner.updates = state["updates"]', "learner.updates = 0"),
    ),
}
"""Check -> words of the reason that it gives for the fault, and the fault."""
TOGETHER = (
    ("declaration", "gradient", "refusal", "result", "sampling"),
    ("turn-rewards", "lockstep"),
)
"""Checks whose faults are put in together: none of these faults shows in another of the checks."""
MINUTES = ("recorded-runs", "injected-faults", "repeat", "resume")


@pytest.fixture(scope="module")
def with_faults(tmp_path_factory):
    """``with_faults(*checks)``: what the command found with the faults of these checks."""

    @cache
    def run(*checks):
        faults = tuple({FAULTS[check][1] for check in checks})
        return conform(tmp_path_factory.mktemp("faults"), "--only", *checks, faults=faults)

    return run


@pytest.mark.parametrize(
    "check",
    [pytest.param(c, marks=pytest.mark.slow) if c in MINUTES else c for c in FAULTS],
)
def test_a_fault_fails_its_check(with_faults, check):
    found = with_faults(*next((group for group in TOGETHER if check in group), (check,)))
    assert found.code == 1, found.output
    status, reason = found.outcome(check)
    assert status == "failed" and FAULTS[check][0] in reason, reason


def test_chosen_cases_alone_are_checked_and_the_report_says_so(plain):
    found = plain("--only", "gradient", "recorded-runs", "--case", "rebn / token")
    assert found.code == 0, found.output
    assert found.outcome("gradient") == ("passed", "equal: rebn / token")
    assert found.outcome("recorded-runs")[0] == "not applicable"
    page = (found.folder / "conformance.md").read_text(encoding="utf-8")
    assert "Only these cases of the checks: rebn / token." in page


def test_overrides_reach_the_recorded_runs_and_the_traceback_is_named(plain):
    """The example refuses weights of its own for LoRA; the case is not about that."""
    names = ("recorded-runs", "injected-faults")
    found = plain("--only", *names, "--case", "rebn", "gamma ignored", "--set", "model.lora.rank=4")
    assert found.code == 1, found.output
    status, reason = found.outcome("recorded-runs")
    assert status == "failed"
    assert "rebn is refused for another reason: " in reason and "model.lora.rank" in reason
    status, reason = found.outcome("injected-faults")
    assert status == "failed" and "every fault is refused: gamma ignored" in reason
    assert f"gem-core conform -v plain --only {' '.join(names)}" in found.output


def test_a_lockstep_of_several_minibatches_does_not_apply(plain):
    found = plain("--only", "lockstep", "--set", "algorithm.minibatches=2")
    assert found.code == 0, found.output
    status, reason = found.outcome("lockstep")
    assert status == "not applicable" and "minibatches" in reason


def test_an_unknown_case_is_one_line_and_no_report(plain):
    found = plain("--case", "narow clip")
    assert (found.code, found.report) == (2, None)
    assert "Unknown case 'narow clip'. Did you mean 'narrow clip'" in found.output


def test_a_trainer_without_a_replay_is_checked_in_all_else(plain):
    measured = ("turn-rewards", "gradient", "recorded-runs", "injected-faults")
    found = plain("--only", "keys", *measured, replay=False)
    assert found.code == 0, found.output
    assert found.outcome("keys")[0] == "passed"
    for check in measured:
        status, reason = found.outcome(check)
        assert status == "not applicable" and "gem_parity.replays" in reason


def test_its_files_are_short():
    files = [*(ROOT / "examples" / "trainer" / "gem_plain").glob("*.py")]
    assert len(files) == 7
    long = {p.name for p in files if len(p.read_text().splitlines()) > MAX_LINES}
    assert long == set()
