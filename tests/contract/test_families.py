"""Every family of environments is trained: three real steps on the shipped samples.

One run mixes the families, because starting a trainer takes most of its time. A family cannot hide
behind the others: each has its own episodes, answers that its grader scored, and rewards in its own
range.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict

import pytest

from gem_conform.measured import LOGPROBS_EQUAL
from gem_conform.metric_names import COMMON, undefined
from gem_core.episodes.data import Episode, StopReason
from gem_core.runs.directory.run_dir import RunDir
from gem_core.training.tiny import model_path
from gem_parity.reference_metrics import ReferenceMetrics
from gem_parity.replays import load_replay

REWARDS = {
    "math:GSM8K": {0.0, 1.0},
    "rg:letter_counting": {0.0, 1.0},
    "qa:HotpotQA": {0.0, 1.0},
    "code:PrimeIntellect15k": {-0.1, 0.0, 1.0},
    "logic:RuleTaker-d2": {0.0, 1.0},
}
"""Environment -> the rewards that it can give."""
ENDS = {StopReason.TERMINATED, StopReason.INVALID_FORMAT, StopReason.CONTEXT_OVERFLOW}
STEPS = 3
EPISODES = 20
CONTEXT = 224
"""Two questions of the sample of qa:HotpotQA are longer, so that their episodes have no turn."""
OVERRIDES = (
    "limits.max_tokens_per_turn=24",
    f"limits.max_context_tokens={CONTEXT}",
    "model.tiny.warm_start_steps=100",
    "model.tiny.warm_start_batch=10",
    "model.tiny.expert_noise=0.8",
    f"batch.episodes={EPISODES}",
    "algorithm.epochs=2",
    "algorithm.clip_low=0.02",
    "algorithm.clip_high=0.02",
    "algorithm.kl_coef=0.05",
    "algorithm.lr=2e-4",  # verl and OpenRLHF cut the KL term of a token off at 10
    "algorithm.max_grad_norm=0.1",
    f"train.steps={STEPS}",
    f"train.log_episodes={EPISODES}",
    "train.save_every=0",
    "eval.episodes=0",
)


def recipe_text() -> str:
    """Return the recipe: one ``[[env]]`` table per family, on its sample."""
    tables = ['name = "families"']
    for env_id in REWARDS:
        tables.append(f'[[env]]\nid = "{env_id}"')
        if not env_id.startswith("rg:"):
            tables.append('kwargs = { dataset = "sample" }')
    return "\n".join(tables)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, trainer_name: str) -> RunDir:
    """The finished run, by the command line."""
    folder = tmp_path_factory.mktemp("families")
    recipe = folder / "families.toml"
    recipe.write_text(recipe_text())
    command = [sys.executable, "-m", "gem_core.cli", "train", str(recipe), "--profile", "tiny"]
    command += ["--trainer", trainer_name, "--run", str(folder / "run")]
    for override in OVERRIDES:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return RunDir(folder / "run")


def test_three_steps_are_trained_with_finite_losses(run: RunDir) -> None:
    rows = run.metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["episodes"] == EPISODES
        assert math.isfinite(row["loss/policy"]) and math.isfinite(row["grad_norm"])


def test_every_family_is_played_graded_and_rewarded(run: RunDir) -> None:
    played = defaultdict(list)
    for _, episode in run.episodes():
        played[episode.env_id].append(episode)
    assert sum(map(len, played.values())) == STEPS * EPISODES
    assert played.keys() == REWARDS.keys()
    for env_id, episodes in played.items():
        reasons = {episode.stop_reason for episode in episodes}
        assert reasons <= ENDS, reasons
        turns = [turn for episode in episodes for turn in episode.turns]
        assert {turn.reward for turn in turns} <= REWARDS[env_id]
        assert any("score" in turn.info for turn in turns), f"{env_id}: no answer was graded"
        assert {turn.info.get("grader_error") for turn in turns} <= {None}


def test_the_samples_are_recorded_as_samples(run: RunDir) -> None:
    record = json.loads((run.path / "run.json").read_text())
    rows = {row["id"]: row["sample"] for row in record["environments"]}
    assert rows == {env_id: not env_id.startswith("rg:") for env_id in REWARDS}


def test_a_question_that_is_too_long_ends_without_a_turn(run: RunDir) -> None:
    cut = [e for _, e in run.episodes() if e.stop_reason is StopReason.CONTEXT_OVERFLOW]
    assert {episode.env_id for episode in cut} == {"qa:HotpotQA"}
    assert not any(episode.turns for episode in cut)


# -- the metrics ----------------------------------------------------------------------------------


def batches(run: RunDir) -> list[list[Episode]]:
    """Return the training episodes of each step, in task order."""
    steps: dict[int, list[Episode]] = defaultdict(list)
    for tags, episode in run.episodes():
        if tags["split"] == "train":
            steps[tags["step"]].append(episode)
    return [sorted(steps[step], key=lambda episode: episode.index) for step in sorted(steps)]


def test_every_metric_has_a_definition(run: RunDir) -> None:
    for row in run.metrics():
        assert undefined(row) == []
        assert row.keys() >= COMMON
        assert row["rollout/staleness"] == row["rollout/staleness_max"] == 0


@pytest.fixture(scope="module")
def expected(run: RunDir, package: str) -> list[dict[str, float]]:
    """The metrics of each step, of a reference that is trained on the run's own episodes."""
    traits = load_replay(package.removeprefix("gem_")).TRAITS
    reference = ReferenceMetrics(run.recipe, model_path(run.recipe), traits, {})
    return [reference.metrics(episodes) for episodes in batches(run)]


def test_the_engine_samples_every_step_with_the_weights_of_the_step_before(
    run: RunDir, expected: list[dict[str, float]]
) -> None:
    """The reference's weights, which no engine gets: the second update is used in step 3."""
    assert len(expected) == STEPS
    for step, (row, metrics) in enumerate(zip(run.metrics(), expected, strict=True), start=1):
        difference = metrics["rollout/logprob_difference"]
        assert difference < LOGPROBS_EQUAL, (
            f"step {step} was not sampled with the weights after step {step - 1}: the engine's "
            f"log-probabilities differ from theirs by {difference:.1e} on average"
        )
        assert row["rollout/logprob_difference"] < LOGPROBS_EQUAL


def test_metrics_mean_what_their_definition_says(
    run: RunDir, expected: list[dict[str, float]]
) -> None:
    for row, metrics in zip(run.metrics(), expected, strict=True):
        compared = {k: v for k, v in metrics.items() if k != "rollout/logprob_difference"}
        assert {name: row[name] for name in compared} == pytest.approx(compared, rel=1e-4)
        assert metrics["clip_ratio"] > 0 and metrics["kl"] > 0
        assert metrics["grad_norm"] > run.recipe.algorithm.max_grad_norm
