"""Rows that TRL trains on are the episodes that were played, token for token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from gem_core.advantages import TurnBatch, compute_advantages
from gem_core.env.interface import Env
from gem_core.env.registration import register
from gem_core.episodes.data import Episode, FinishReason, StopReason
from gem_core.episodes.metrics import episode_metrics
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.policies.engine.policy import HFPolicy
from gem_core.runs.tasks import step_tasks
from gem_core.training.tiny import model_path
from gem_trl.policy import EnginePolicy
from gem_trl.rollout import sampling_at, to_native
from gem_trl.trainer import GemTrainer

ACTIONS = ["\\boxed{5}", "\\boxed{2}", "nonsense", "\\boxed{7}", "\\boxed{9}", "\\boxed{1}"]


class Raises(Env):
    """Breaks in the second turn of every other seed."""

    def _reset(self, options):
        self.turn = 0
        return "go", {}

    def _step(self, action):
        self.turn += 1
        if self.turn == 2 and self.seed_is_odd:
            raise RuntimeError("scripted fault")
        return "on", 1.0, self.turn == 2, False, {}

    def reset(self, *, seed=None, options=None):
        self.seed_is_odd = bool(seed % 2)
        return super().reset(seed=seed, options=options)


class Hangs(Raises):
    """Sleeps for a minute in the first turn of every other seed."""

    slow = True

    def _step(self, action):
        if self.seed_is_odd:
            import time

            time.sleep(60)
        return "on", 1.0, True, False, {}


register("trltest:Raises-v0", f"{__name__}:Raises")
register("trltest:Hangs-v0", f"{__name__}:Hangs")


def rows_of(trainer):
    size = trainer.recipe.batch.episodes
    repeat = trainer.args.num_generations
    return [{"prompt": "", "first_task": k // repeat * repeat} for k in range(size)]


def prepare(trainer):
    trainer.model.train()
    return trainer._generate_and_score_completions(rows_of(trainer))


def test_rows_masks_and_advantages_are_the_episodes_own(make_trainer, scripted):
    trainer = make_trainer("batch.episodes=12")
    scripted(trainer, ACTIONS)
    out = prepare(trainer)
    episodes = trainer.step_batch.episodes
    assert [e.seed for e in episodes] == [t.seed for t in step_tasks(trainer.recipe, 0)]
    batch = TurnBatch.from_episodes([e.rewards for e in episodes])
    flat = compute_advantages("rebn", batch, gamma=trainer.recipe.algorithm.gamma)
    per_episode = np.split(flat, np.cumsum([len(e.turns) for e in episodes])[:-1])
    tokenizer = trainer.processing_class
    for k, episode in enumerate(episodes):
        (segment,) = episode.segments
        prompt = out["prompt_ids"][k][out["prompt_mask"][k] == 1].tolist()
        kept = out["completion_mask"][k] == 1
        completion = out["completion_ids"][k][kept].tolist()
        assert prompt + completion == segment.token_ids
        mask = out["tool_mask"][k][kept]
        assert [0] * len(prompt) + mask.tolist() == segment.loss_mask
        expected = np.zeros(len(segment.token_ids))
        for turn, start, end in segment.spans:
            expected[start:end] = per_episode[k][turn]
            stopped = segment.token_ids[end - 1] in trainer.machines.stop_ids
            text = tokenizer.decode(segment.token_ids[start : end - stopped])
            assert text == episode.turns[turn].action
        np.testing.assert_allclose(
            out["advantages"][k][kept].numpy(), expected[len(prompt) :], atol=1e-6
        )
        assert not out["advantages"][k][~kept].any()
    assert int(out["num_items_in_batch"]) == sum(e.action_tokens for e in episodes)


def test_what_trl_scores_is_the_undiscounted_return(make_trainer, scripted):
    trainer = make_trainer()
    scripted(trainer, ACTIONS)
    prepare(trainer)
    mean = np.mean([e.total_reward for e in trainer.step_batch.episodes])
    assert trainer._metrics["train"]["reward"][-1] == pytest.approx(mean)


def test_groups_share_their_seed_and_are_adjacent(make_trainer, scripted):
    trainer = make_trainer("algorithm.estimator=grpo", "batch.group_size=4")
    scripted(trainer, ACTIONS)
    prepare(trainer)
    episodes = trainer.step_batch.episodes
    assert [e.group for e in episodes] == [0] * 4 + [1] * 4
    assert [e.seed for e in episodes] == [episodes[0].seed] * 4 + [episodes[4].seed] * 4


def test_rows_out_of_their_slot_are_noticed(make_trainer, scripted):
    trainer = make_trainer()
    scripted(trainer, ACTIONS)
    with pytest.raises(GemError, match="data rows"):
        trainer._generate_and_score_completions(rows_of(trainer)[::-1])


def test_an_environment_that_raises_keeps_its_rows(make_trainer, scripted):
    trainer = make_trainer("env=[{id = 'trltest:Raises-v0'}]")
    scripted(trainer, ["x"])
    out = prepare(trainer)
    episodes = trainer.step_batch.episodes
    failed = [e.stop_reason is StopReason.ENV_ERROR for e in episodes]
    assert failed == [False, True] * 4
    assert len(out["advantages"]) == 8
    trained = (out["completion_mask"] * out["tool_mask"]).sum(1) > 0
    assert trained.tolist() == [not f for f in failed]
    metrics = episode_metrics(episodes)
    assert metrics["episodes/untrained"] == 4
    # two turns played in each failed episode, one of them never answered
    assert metrics["turns/masked"] == 8


def test_an_environment_that_hangs_ends_at_its_deadline(make_trainer, scripted):
    trainer = make_trainer("env=[{id = 'trltest:Hangs-v0'}]", "limits.turn_deadline_s=0.2")
    scripted(trainer, ["x"])
    prepare(trainer)
    reasons = [e.stop_reason for e in trainer.step_batch.episodes]
    assert reasons == [StopReason.TERMINATED, StopReason.DEADLINE] * 4


def test_a_batch_that_mostly_failed_stops_the_run(make_trainer, scripted):
    trainer = make_trainer("env=[{id = 'trltest:Hangs-v0'}]", "limits.episode_deadline_s=1e-9")
    scripted(trainer, ["x"])
    with pytest.raises(GemError, match="100% of the batch"):
        prepare(trainer)


def test_an_episode_without_a_turn_is_one_untrained_token():
    empty = Episode("e", 0, stop_reason=StopReason.ENV_ERROR)
    sample = to_native([empty], pad_id=3)
    assert (sample["prompt_ids"], sample["completion_ids"]) == ([[3]], [[3]])
    assert sample["env_mask"] == [[0]]


@pytest.mark.parametrize("kind", ["hf", "continuous"])
def test_real_generation_keeps_the_caps_and_the_stop_token(make_trainer, kind):
    native = f"trainer.trl.use_transformers_continuous_batching={str(kind != 'hf').lower()}"
    trainer = make_trainer(native)
    machines = [trainer.machines.train(k) for k in range(4)]
    requests = [Request(m.start(), cap, m) for m, cap in zip(machines, (8, 1, 3, 8), strict=True)]
    for completion, request in zip(
        trainer.engine_policy.complete_batch(requests), requests, strict=True
    ):
        ids, stops = completion.token_ids, set(trainer.machines.stop_ids)
        assert 1 <= len(ids) <= request.max_tokens
        assert not stops & set(ids[:-1])
        stopped = completion.finish_reason is FinishReason.STOP
        assert stopped == (ids[-1] in stops)
        assert stopped or len(ids) == request.max_tokens


@pytest.mark.parametrize(
    ("native", "by_trl"),
    [
        ("train.steps=2", False),
        ("trainer.trl.min_p=0.1", True),
        ("trainer.trl.use_transformers_continuous_batching=true", True),
        ("trainer.trl.generation_kwargs={repetition_penalty = 1.1}", True),
    ],
)
def test_who_generates_on_a_cpu(make_trainer, native, by_trl):
    """The engine that all adapters share, unless a key asks for what only TRL's own has."""
    assert make_trainer(native).engine_policy.by_trl is by_trl


def test_the_engine_of_all_adapters_samples_from_the_live_model(make_trainer):
    """Equal weights and requests give the core's tokens, also after the weights changed."""
    trainer = make_trainer()
    for _ in range(2):
        machines = [trainer.machines.train(k) for k in range(4)]
        requests = [Request(m.start(), 8, m) for m in machines]
        core = HFPolicy(trainer.model, trainer.machines.stop_ids).complete_batch(requests)
        found = trainer.engine_policy.complete_batch(requests)
        assert [completion.version for completion in found] == [0] * len(requests)
        assert [replace(completion, version=None) for completion in found] == core
        with torch.no_grad():
            trainer.model.get_input_embeddings().weight.mul_(1.1)


@pytest.fixture
def complete(make_trainer):
    """``complete(ids, logprobs, cap)``: the completion of a row that TRL generated.

    ``"stop"`` among the ids is the stop token, ``"end"`` one at which TRL alone ends a row.
    """
    trainer = make_trainer()
    stop = trainer.machines.stop_ids[0]
    end = 11
    trainer.eos_token_ids = [stop, end]

    def run(ids, logprobs=None, cap=8):
        ids = [{"stop": stop, "end": end}.get(token, token) for token in ids]
        trainer._generate_single_turn = lambda *_: ([ids], None if logprobs is None else [logprobs])
        machine = trainer.machines.train(0)
        request = Request(machine.start(), cap, machine)
        (completion,) = EnginePolicy(trainer, [stop]).complete_batch([request])
        assert completion.token_ids == ids[: len(completion.token_ids)]
        return len(completion.token_ids), completion.logprobs, completion.finish_reason

    return run


def test_a_completion_is_cut_after_its_first_stop_token(complete):
    row = complete([9, "stop", 9, "stop"], [-1.0, -2.0, 0, 0])
    assert row == (2, [-1.0, -2.0], FinishReason.STOP)


def test_a_completion_is_cut_at_the_cap_of_its_turn(complete):
    assert complete([9, 8, 7, "stop"], cap=2) == (2, None, FinishReason.LENGTH)
    assert complete([9, "stop", 7], cap=2) == (2, None, FinishReason.STOP)


def test_a_row_that_trl_ended_at_another_end_token_is_a_whole_action(complete):
    assert complete([9, "end"]) == (2, None, FinishReason.STOP)
    assert complete(["end", 9, "stop"]) == (3, None, FinishReason.STOP)


@pytest.mark.parametrize("ids", [[], [9, 8]])
def test_a_row_that_ends_for_no_reason_stops_the_run(complete, ids):
    with pytest.raises(GemError, match="no stop token"):
        complete(ids)


def test_evaluation_leaves_the_training_as_it_was(make_trainer):
    trainer = make_trainer("eval.temperature=0.0")
    torch.manual_seed(3)
    state, config = torch.get_rng_state(), trainer.generation_config.to_dict()
    first = trainer.play_evaluation(4)
    assert trainer.generation_config.to_dict() == config
    assert torch.equal(torch.get_rng_state(), state)
    again = trainer.play_evaluation(4)
    assert [e.segments[0].token_ids for e in first] == [e.segments[0].token_ids for e in again]
    assert all(e.seed < 0 for e in first)
    with sampling_at(trainer, 0.5, 0.9):
        assert trainer.generation_config.temperature == 0.5
        assert trainer.generation_config.top_p == 0.9


def test_a_chat_template_that_drops_thinking_makes_a_row_of_each_turn(
    make_recipe, make_trainer, scripted, tmp_path
):
    assert not make_trainer("context.template=chat").several_rows
    recipe = make_recipe("context.template=chat", "train.steps=1", "limits.max_tokens_per_turn=40")
    tokenizer = AutoTokenizer.from_pretrained(model_path(recipe))
    dropping = "message['content'].split('</think>')[-1]"
    tokenizer.chat_template = tokenizer.chat_template.replace("message['content']", dropping)
    trainer = GemTrainer.from_recipe(recipe, model_path(recipe), tokenizer, tmp_path)
    scripted(trainer, [f"no</think>\\boxed{{{number}}}" for number in (3, 5, 7)])
    trainer.train()
    batch = trainer.step_batch
    turns = sum(len(episode.turns) for episode in batch.episodes)
    assert trainer.several_rows and len(batch.rows) == turns > len(batch.episodes)
    assert trainer.slots == turns
