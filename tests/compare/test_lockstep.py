"""Lockstep finds where two runs differ, and tells rounding from a fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from gem_compare.command import QUICK
from gem_compare.grid import Cell
from gem_compare.lockstep.divergence import tie_gap
from gem_compare.lockstep.page import lockstep_page
from gem_compare.lockstep.recipe import WHOLE_BATCHES
from gem_compare.lockstep.summary import (
    cause,
    common_steps,
    faults,
    lockstep_cells,
    summarize,
)
from gem_compare.lockstep.traces import read_trace
from gem_compare.lockstep.weights import weight_difference
from gem_compare.results import read_cells
from gem_core.cli import main
from gem_core.errors import RunError
from gem_core.policies.engine.philox import uniforms
from gem_core.runs.directory.run_dir import RunDir

sys.path.insert(0, str(Path(__file__).parent))
from lockstep_runs import (
    EPISODES,
    STEPS,
    Faults,
    log_softmax,
    make_run,
    write_model,
)


@pytest.fixture
def compared(tmp_path):
    """``compared(**faults)``: the summary of runs of trl and of an oat with these faults."""

    def run(faults=None, **options):
        make_run(tmp_path, "trl")
        make_run(tmp_path, "oat", faults, **options)
        (members,) = lockstep_cells(read_cells(tmp_path)).values()
        return summarize(members)

    return run


def begins(summary):
    (pair,) = summary["pairs"]
    return {row["quantity"]: row["begins"] for row in pair["differences"] if row["begins"]}


def test_runs_that_differ_by_rounding_hold(compared):
    summary = compared()
    assert common_steps(summary) == STEPS
    assert faults(summary) == [] and begins(summary) == {}
    (pair,) = summary["pairs"]
    assert pair["drift"][0] == 0 and 0 < max(pair["drift"]) < 1e-5
    assert 0 < pair["weights"]["largest"] < 1e-5 and pair["weights"]["parameter"] == "policy"


def test_a_wrong_rate_is_found_in_its_step_and_in_the_weights_of_the_next(compared):
    summary = compared(Faults(start=3, lr=1.01))
    assert begins(summary) == {"lr": 3, "log-probabilities": 4}
    assert any("lr differ from step 3" in line for line in faults(summary))


def test_a_wrong_rate_that_the_log_hides_is_found_in_the_weights(compared):
    assert begins(compared(Faults(start=2, lr=1.01, hidden=True)))["log-probabilities"] == 3


def test_a_dropped_reward_is_found_in_the_advantages(compared):
    found = begins(compared(Faults(start=4, drop_last=True)))
    assert found["advantage/cubed"] == 4 and found["grad_norm"] == 4
    assert "advantage/std" not in found  # ReBN fixes it


def test_the_first_other_token_is_shown_with_both_sides(compared):
    summary = compared(Faults(start=2, lr=-8.0, hidden=True))
    (pair,) = summary["pairs"]
    divergence = pair["parting"]
    assert pair["identical"] == common_steps(summary) == divergence["step"] - 1 == 2
    assert divergence["tokens"][0] != divergence["tokens"][1] and 0 <= divergence["position"] < 3
    one, other = divergence["texts"]
    place = divergence["position"]
    assert one[:place] == other[:place] and one[place] != other[place]
    page = lockstep_page([summary])
    assert f"step 3, episode {divergence['index']} " in page and repr(one) in page
    assert repr(other) in page and "NOT rounding" in page


def test_a_tie_is_told_from_a_fault_by_the_noise_that_both_drew_with(compared):
    summary = compared(rounding=0.02)
    (pair,) = summary["pairs"]
    assert 0 < pair["parting"]["gap"] < 0.1  # with other noise it would be of the order of 1
    assert begins(summary)["log-probabilities"] == 2  # no float32 rounds like that
    assert "NOT rounding" not in cause(pair["parting"], pair["drift"])
    assert "NOT rounding" in cause(pair["parting"], [1e-6] * len(pair["drift"]))


def test_other_prompts_are_named(compared):
    summary = compared(Faults(start=5, prompt=1))
    (pair,) = summary["pairs"]
    assert pair["parting"]["position"] == -1 and pair["parting"]["episodes"] == EPISODES
    assert pair["parting"]["turn"] == 0
    assert any("the prompts differ" in line and "step 5" in line for line in faults(summary))


def test_without_log_probabilities_tokens_and_metrics_are_compared(compared):
    summary = compared(Faults(start=3, lr=1.01), logprobs=False)
    found = begins(summary)
    assert found["lr"] == 3 and found["loss/policy"] == 4 and "log-probabilities" not in found
    assert summary["pairs"][0]["drift"] == [None] * STEPS


def test_the_gap_is_at_most_the_difference_of_the_policies():
    rng = np.random.default_rng(0)
    parted = 0
    for key in range(400):
        one = log_softmax(rng.normal(size=20))
        other = log_softmax(one + rng.normal(scale=0.05, size=20))
        gumbel = -np.log(-np.log(uniforms([key], [3], 20)[0]))
        tokens = (int(np.argmax(one + gumbel)), int(np.argmax(other + gumbel)))
        if tokens[0] != tokens[1]:
            parted += 1
            gap = tie_gap(key, 3, tokens, (float(one[tokens[0]]), float(other[tokens[1]])))
            assert gap <= np.abs(one - other).max()
    assert parted > 5


def test_an_incomplete_log_is_refused(tmp_path):
    folder = make_run(tmp_path, "trl")
    lines = (folder / "episodes.jsonl").read_text().splitlines(keepends=True)
    (folder / "episodes.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(RunError, match=f"step {STEPS} has {EPISODES - 1} of {EPISODES} episodes"):
        read_trace(RunDir(folder))


def test_weights_are_read_without_torch(tmp_path):
    values = np.array([[1.0, -2.0], [0.5, 3.0]], dtype=np.float32)
    write_model(tmp_path / "one", {"a": values, "b": values})
    write_model(tmp_path / "two", {"a": values, "b": values + np.float32(0.25)})
    found = weight_difference(tmp_path / "one", tmp_path / "two")
    assert (found.largest, found.parameter) == (0.25, "b")
    assert found.relative == pytest.approx(np.sqrt(0.25 / (2 * (values**2).sum())))
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)  # exact in bfloat16
    write_model(tmp_path / "half", {"a": upper}, "BF16")
    half = weight_difference(tmp_path / "half", tmp_path / "one")
    assert half.largest == 0 and half.only_in_one == ["b"]
    with pytest.raises(RunError, match=r"no \*\.safetensors"):
        weight_difference(tmp_path / "one", tmp_path / "none")


def test_the_command_reports_and_fails_where_trainers_part(tmp_path, capsys):
    good, bad = tmp_path / "good", tmp_path / "bad"
    for out, wrong in ((good, None), (bad, Faults(start=2, lr=1.01))):
        make_run(out, "trl")
        make_run(out, "oat", wrong)
    assert main(["compare", "--lockstep", "--report-only", "--out", str(good)]) == 0
    text = capsys.readouterr().out
    assert f"2 trainers (oat, trl) drew identical tokens in {STEPS} of {STEPS}" in text
    assert main(["compare", "--lockstep", "--report-only", "--out", str(bad)]) == 1
    assert "oat and trl: lr differ from step 2" in capsys.readouterr().out
    summary = json.loads((bad / "lockstep-guess-the-number-easy-rebn-seed0.json").read_text())
    page = (bad / "lockstep.md").read_text()
    assert lockstep_page([summary], ["lockstep-guess-the-number-easy-rebn-seed0.png"]) in page
    assert (bad / "lockstep-guess-the-number-easy-rebn-seed0.png").stat().st_size > 1000


def test_a_quick_comparison_is_compared_token_by_token():
    recipe = Cell("guess-the-number-easy", "trl", "rebn", 0).recipe("tiny", QUICK)
    assert recipe.train.log_episodes >= WHOLE_BATCHES and recipe.train.steps == 3
    assert recipe.eval.every == 2  # an evaluation inside training, whose tokens are compared
    assert recipe.algorithm.lr_schedule == "constant" and recipe.model.dtype == "float32"


def test_the_number_of_steps_belongs_to_lockstep(capsys, monkeypatch):
    monkeypatch.setenv("GEM_CORE_PYTHON_OAT", sys.executable)  # a dry run needs no trainer
    assert main(["compare", "--steps", "3", "--dry-run"]) == 2
    assert "--set train.steps=N" in capsys.readouterr().err
    options = ["--trainers", "oat", "--dry-run"]
    assert main(["compare", "--lockstep", "--steps", "3", *options]) == 0
    printed = capsys.readouterr().out
    assert "train.steps=3" in printed and "lr_schedule=constant" in printed
