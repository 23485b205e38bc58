"""A run of TRL with ``history = "compact"``: sampled, trained, evaluated, stored, scored again."""

from __future__ import annotations

import pytest

from gem_core.env.interface import Env
from gem_core.env.registration import register
from gem_core.evaluation.rescore import rescore
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_trl import launch


class Three(Env):
    """Takes three actions, whatever they are: an untrained model plays it to its end."""

    def _reset(self, options):
        self.turn = 0
        return "go", {}

    def _step(self, action):
        self.turn += 1
        over = self.turn == 3
        return "on", len(action) % 5 / 4, over, False, {"success": over} if over else {}


register("trlcompact:Three-v0", f"{__name__}:Three")
KEYS = (
    "context.history=compact",
    "context.compact.budget=1",  # a request after every action but the last
    "context.compact.max_tokens=4",
    "env=[{id = 'trlcompact:Three-v0'}]",
    "train.steps=1",
    "train.log_episodes=8",
    "eval.every=1",
    "eval.inside_episodes=4",
)


@pytest.mark.parametrize("trained", [True, False])
def test_a_step_end_to_end(make_recipe, tmp_path, trained):
    recipe = make_recipe(*KEYS, f"context.compact.trained={str(trained).lower()}")
    run = RunDir.create(tmp_path / "run", recipe, "trl", "error")
    launch.run(resolve_run(recipe, "trl"), run)
    (row,) = run.metrics()
    stored = [episode for tags, episode in run.episodes() if tags["split"] == "train"]
    summaries = [turn for e in stored for turn in e.turns if turn.kind == "summary"]
    assert len(stored) == row["episodes"] == 8 and len(summaries) == 16
    assert row["summary/mean"] == 2 and 1 <= row["summary/tokens"] <= 4
    assert row["turns/total"] == sum(len(e.acts) for e in stored)
    assert all(turn.aborted is not trained and turn.reward == 0 for turn in summaries)
    assert row["rollout/logprob_difference"] < 1e-5  # prompts, tokens and masks are the engine's
    for episode in stored:
        assert len(episode.segments) == len(episode.acts)
        for segment, after in zip(episode.segments, episode.segments[1:], strict=False):
            act, summary = segment.spans
            assert all(segment.loss_mask[act[1] : act[2]])
            assert set(segment.loss_mask[summary[1] : summary[2]]) == {int(trained)}
            assert after.spans[0][0] == summary[0] + 1
    (evaluated,) = run.evals()
    assert evaluated["summary/mean"] > 0
    again = rescore(run.path, tmp_path / "again")
    assert (again.episodes, again.changed) == (12, 0)
    kinds = [[turn.kind for turn in e.turns] for _, e in RunDir(tmp_path / "again").episodes()]
    assert sorted(kinds) == sorted([t.kind for t in e.turns] for _, e in run.episodes())
