"""One row per segment gives the gradients of one row per turn, with fewer tokens."""

from __future__ import annotations

import pytest
import torch
from deepspeed.utils import safe_get_full_grad

from gem_oat.cpu.in_process import InProcessLearner
from gem_oat.rollout import to_data, to_native
from gem_oat.rows import SegmentRow
from gem_parity.frozen import frozen_batch

GAMMA = "algorithm.gamma=0.9"


class Noting(InProcessLearner):
    """Keeps the gradient of the first step of each engine."""

    def learning_step(self, trajectory):
        self.gradients = {}
        engines = self.engines
        step = self.strategy.optimizer_step

        def note(optimizer, model, scheduler, **kwargs):
            engine = {self.model: self.model.model}.get(model, model)
            if engine in engines and engine not in self.gradients:
                named = engine.module.named_parameters()
                self.gradients[engine] = {name: safe_get_full_grad(w).clone() for name, w in named}
            step(optimizer, model, scheduler, **kwargs)

        self.strategy.optimizer_step = note
        return super().learning_step(trajectory)


def batch(critic):
    """The frozen batch as the actor gives it, with a state after each cut episode."""
    env_ids = ["frozen:dense", "frozen:terminal"]
    data = []
    for number, machine in enumerate(frozen_batch(16, group_size=2).machines):
        env = env_ids.index(machine.episode.env_id)
        state = machine.bootstrap_state() if critic else []
        data += to_native(machine.episode, number, env, state)
    return data


def by_turn(data):
    """A row for each turn and state, as Oat's own rows are."""
    turns = [turn for row in data for turn in row.row.turns]
    return [to_data(SegmentRow([*turn.prompt, *turn.response], (turn,))) for turn in turns]


def update(learner, small, data, name):
    """What one update on ``data`` computes: gradients by engine, and metrics."""
    torch.manual_seed(0)  # of the critic's head
    made = learner(small, name=name, learner=Noting, alone=True)
    made._init(made.args, made.actors)
    made.steps = 0
    made.gradient_update_st = 0.0
    made.process_feedback_data(data)
    made.learn(1)
    return list(made.gradients.values()), {**made.losses, **made.summary}


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.estimator=rebn", "algorithm.loss_aggregation=sequence", GAMMA],
        ["algorithm.estimator=reinforce", "algorithm.kl_coef=0.1", "algorithm.kl_in=loss", GAMMA],
        ["algorithm.estimator=grpo", "algorithm.kl_coef=0.1", "algorithm.kl_in=reward"],
        ["algorithm.estimator=gae", "algorithm.kl_coef=0.1", "algorithm.kl_in=reward", GAMMA],
    ],
)
def test_the_gradients_are_those_of_a_row_per_turn(recipe, learner, overrides):
    small = recipe("batch.group_size=2", "batch.episodes=16", *overrides)
    data = batch(critic="algorithm.estimator=gae" in overrides)
    apart = by_turn(data)
    assert sum(len(d.row.token_ids) for d in apart) > 1.5 * sum(len(d.row.token_ids) for d in data)
    assert any(not d.row.trained for d in data), "no failed episode: the test shows less"
    gradients, metrics = update(learner, small, data, "segments")
    expected, expected_metrics = update(learner, small, apart, "turns")
    assert len(gradients) == len(expected) == (2 if "algorithm.estimator=gae" in overrides else 1)
    for mine, others in zip(gradients, expected, strict=True):
        flat, other = (torch.cat([g.double().ravel() for g in d.values()]) for d in (mine, others))
        assert other.norm() > 1e-3
        assert (flat - other).norm() < 2e-6 * other.norm()
    assert metrics == pytest.approx(expected_metrics, rel=1e-5, abs=1e-7)


def test_a_forward_pass_has_at_most_so_many_tokens(recipe, learner, rows):
    longest = max(len(data.row.token_ids) for data in rows)
    for most, micro in ((3 * longest, 3), (1, 1), (10**9, len(rows))):
        small = recipe(f"batch.max_tokens_per_device={most}")
        # A limit below the context is refused in a recipe; the learner goes on with single rows.
        made = learner(recipe(), name=f"most{most}", alone=True)
        made._init(made.args, made.actors)
        made.recipe = small
        made.process_feedback_data(list(rows))
        assert made.args.train_batch_size_per_device == micro
        assert len(made.pi_buffer) == made.strategy.grad_acc_step * micro
