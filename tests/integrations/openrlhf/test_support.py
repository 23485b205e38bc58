"""Truncated sampling in OpenRLHF: its log-probabilities are the engine's, among the same tokens."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from vllm import AsyncEngineArgs, AsyncLLMEngine, SamplingParams

from gem_core.errors import GemError, RecipeError
from gem_core.runs.tasks import train_task
from gem_openrlhf import support, updates
from gem_openrlhf.config import translate
from gem_openrlhf.cpu.in_process import InProcess
from gem_openrlhf.rollout import GemAgentExecutor
from gem_parity.cases import RUNS, STRONG
from gem_parity.frozen import frozen_episodes
from gem_parity.reference import compare
from gem_parity.teacher_forced import teacher_forced

CUT = ("sampling.top_p=0.8", "sampling.top_k=20", "batch.episodes=8", "algorithm.kl_coef=0.1")
DRAWN = (*CUT, "sampling.support=drawn")


class Rollouts(RolloutRayActor.__ray_metadata__.modified_class):
    """OpenRLHF's rollout actor without Ray."""

    def __init__(self, model):
        self.llm = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=model))
        self._mm_pad_token_ids = None


def play(recipe, model):
    """The episodes of the first step, by the adapter's executor and the engine of a CPU."""
    executor = GemAgentExecutor(recipe)
    sampling = recipe.sampling
    params = SamplingParams(temperature=sampling.temperature, top_p=sampling.top_p, min_tokens=1)

    async def run():
        engine = Rollouts(model)
        labels = [f"train/{number}" for number in range(recipe.batch.episodes)]
        calls = [executor.execute("", label, params, 512, None, engine) for label in labels]
        return await asyncio.gather(*calls)

    episodes = [response["label"][0] for response in asyncio.run(run())]
    assert [e.seed for e in episodes] == [train_task(recipe, e.index).seed for e in episodes]
    return episodes


@pytest.fixture
def scored(tiny, untrained):
    """``scored(*overrides)``: largest differences to the engine, of the policy and initial one."""

    def run(*overrides):
        recipe = tiny("model.tiny.warm_start_steps=0", "batch.group_size=1", *overrides)
        trainer = InProcess(recipe, untrained)
        experiences = trainer.experiences(play(recipe, untrained))
        largest = []
        for name in ("action_log_probs", "base_action_log_probs"):
            off = [
                (getattr(e, name) - e.rollout_log_probs)[e.action_mask.bool()].abs().max()
                for e in experiences
                if e.action_mask.any()
            ]
            largest.append(float(max(off)))
        return largest

    return run


PASSES = {
    "padded": ("batch.micro_batch=4",),
    "packed": ("batch.max_tokens_per_device=512", "limits.max_context_tokens=512"),
    "rows": ("context.history=last", "batch.micro_batch=2"),
    "warm": ("sampling.temperature=0.5",),
}


@pytest.mark.parametrize("case", PASSES)
def test_they_are_the_engines(scored, case):
    over_drawn = scored(*DRAWN, *PASSES[case])
    over_all = scored(*CUT, *PASSES[case])
    print(f"over the drawn tokens {max(over_drawn):.2e}, over all {max(over_all):.2e}")
    assert max(over_drawn) < 1e-5
    assert min(over_all) > 0.1


def test_real_vllm_is_refused(tiny):
    """Its answer has no sets, and OpenRLHF does not look at the recipe."""
    with pytest.raises(RecipeError, match=r"sampling\.support = 'drawn'.*vLLM's answer"):
        translate(tiny(*DRAWN, "hardware.engine=vllm", "model.dtype=bfloat16"))


def update(recipe, model, episodes):
    trainer = InProcess(recipe, model)
    status = trainer.train(trainer.experiences(episodes))
    return trainer.steps[0], status["gem/entropy"]


def test_packed_rows_have_the_update_of_padded_ones(tiny, model_dir):
    keys = (*DRAWN, "batch.episodes=16", "algorithm.epochs=1", "algorithm.entropy_coef=0.1")
    episodes = frozen_episodes(16, support=True)
    padded, entropy = update(tiny(*keys), model_dir, episodes)
    packed, same = update(tiny(*keys, *PASSES["packed"]), model_dir, episodes)
    cosine, norm = compare(packed, padded)
    assert cosine > 0.999999 and norm == pytest.approx(1.0, abs=1e-5)
    assert same == pytest.approx(entropy, rel=1e-5) and entropy < np.log(60)


def shift(monkeypatch):
    """Each token gets the set of the one before it."""
    plain = support.restricted
    monkeypatch.setattr(
        support,
        "restricted",
        lambda model, sets, *rows: plain(model, [[None, *s[:-1]] for s in sets], *rows),
    )


def lose_a_row(monkeypatch):
    """The first row of each scoring pass comes without its sets."""
    plain = support.scoring
    monkeypatch.setattr(
        updates, "scoring", lambda actor, sets, columns: plain(actor, [[], *sets[1:]], columns)
    )


@pytest.mark.parametrize(
    ("fault", "message"), [(shift, "shifted against each other"), (lose_a_row, "was lost on the")]
)
def test_sets_that_are_not_the_rows_end_the_run(monkeypatch, tiny, model_dir, fault, message):
    trainer = InProcess(tiny(*DRAWN, "batch.episodes=16"), model_dir)
    fault(monkeypatch)
    with pytest.raises(GemError, match=message):
        trainer.experiences(frozen_episodes(16, support=True))


def old_over_all(monkeypatch):
    """Only the update and the initial model are among the drawn tokens."""
    plain = support.scoring
    monkeypatch.setattr(
        updates, "scoring", lambda actor, sets, columns: plain(actor, None, columns)
    )


def initial_over_all(monkeypatch):
    """The initial model scores among all tokens."""
    actor = support.GemReferenceModelActor
    stock = actor.__bases__[0].forward
    monkeypatch.setattr(actor, "forward", lambda self, supports, **rows: stock(self, **rows))


def entropy_over_all(monkeypatch):
    """The entropy is that of all logits, as they were before they were restricted."""
    plain = updates.restrict_updates

    def restrict_updates(trainer):
        plain(trainer)
        engine = trainer.actor.model
        kept = []
        engine.register_forward_hook(lambda m, i, out: kept.append(out.logits.float()))

        def with_all(module, inputs, outputs):
            if isinstance(outputs, tuple):
                logs = kept[-1].log_softmax(-1)
                outputs[1].entropy = -(logs.exp() * logs).sum(-1)[:, :-1]

        trainer.actor.register_forward_hook(with_all)

    monkeypatch.setattr(updates, "restrict_updates", restrict_updates)


ENTROPY = STRONG["large entropy bonus, mean of sequences"]


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (RUNS["rebn"], None),
        (RUNS["rebn"], old_over_all),
        (RUNS["rebn"], initial_over_all),
        (ENTROPY, None),
        (ENTROPY, entropy_over_all),
    ],
)
def test_a_part_over_all_tokens_shows(monkeypatch, model_dir, case, fault):
    """The parity suite sees it after one step; without a fault it sees nothing."""
    from gem_replays.openrlhf import TRAITS, replay_run

    recipe = case.recipe((), 1, (*CUT[:2], "sampling.support=drawn"))
    if fault is not None:
        fault(monkeypatch)
    result = teacher_forced(recipe, model_dir, replay_run, TRAITS)
    print(result.faults)
    assert bool(result.faults) == (fault is not None)
