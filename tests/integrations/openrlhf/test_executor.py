"""The agent executor: whole episodes, the recipe's caps, one copy of the parameters per request."""

from __future__ import annotations

import asyncio
import time

import pytest
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor
from openrlhf.utils.agent import AgentExecutorBase
from vllm import SamplingParams

import gem_openrlhf.rollout as rollout
from gem_core.env.interface import Env
from gem_core.episodes.data import FinishReason, StopReason
from gem_core.episodes.request_seed import request_seed
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.tasks import train_task


class Slow(Env):
    """Blocks for a while; the second step raises."""

    slow = True

    def _reset(self, options):
        return "slow start", {}

    def _step(self, action):
        time.sleep(0.3)
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 2:
            raise RuntimeError("no answer from outside")
        return "continue", 0.5, False, False, {}


@pytest.fixture
def register_slow():
    from gem_core.env.registration import register

    name = "test:OpenRLHFSlow-v0"
    register(name, f"{__name__}:Slow")
    return name


def play(executor, engine, tokenizer, label="train/0", params=None, max_length=512):
    params = params or SamplingParams(max_tokens=16, min_tokens=1)
    return asyncio.run(executor.execute("p", label, params, max_length, tokenizer, engine))


def test_it_is_what_openrlhf_loads(tiny, tmp_path, monkeypatch):
    run = RunDir.create(tmp_path / "run", tiny(), "openrlhf")
    monkeypatch.setenv(RUN_VARIABLE, str(run.path))
    executor = _load_agent_executor(rollout.__file__)
    assert isinstance(executor, AgentExecutorBase)
    assert executor.recipe == tiny()


def test_in_a_run_each_engine_loads_the_tokenizer(tiny, engine, tokenizer, untrained):
    """OpenRLHF would pickle it for every prompt: seconds for one with 150,000 tokens."""
    recipe = tiny("model.tiny.warm_start_steps=0")
    loaded = play(rollout.GemAgentExecutor(recipe), engine, None)
    handed_over = play(rollout.GemAgentExecutor(recipe), engine, tokenizer)
    assert loaded["observation_tokens"][:20] == handed_over["observation_tokens"][:20]
    assert loaded["label"][0].turns[0].finish_reason is FinishReason.STOP


def test_without_a_run_the_error_tells_how_to_start(monkeypatch):
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    with pytest.raises(GemError, match="gem-core train"):
        rollout.GemAgentExecutor()


def test_an_episode_becomes_a_response(tiny, engine, tokenizer):
    response = play(rollout.GemAgentExecutor(tiny()), engine, tokenizer)
    episode, _, row = response["label"]
    (segment,) = episode.segments
    assert row == 0
    assert response["observation_tokens"] == segment.token_ids
    assert len(response["action_ranges"]) == len(episode.turns) >= 2
    requests = zip(response["action_ranges"], engine.requests, strict=True)
    for (start, end), (prompt_ids, _) in requests:
        assert segment.token_ids[:start] == prompt_ids  # token in, token out
        assert segment.token_ids[end - 1] == tokenizer.eos_token_id
    assert response["extra_logs"] == {} and response["rollout_log_probs"] == segment.logprobs
    assert train_task(tiny(), 0).seed == episode.seed


def test_the_prompt_of_the_dataset_is_not_played(tiny, engine, tokenizer):
    play(rollout.GemAgentExecutor(tiny()), engine, tokenizer)
    first = tokenizer.decode(engine.requests[0][0])
    assert "Guess The Number" in first and "<|im_start|>user" in first


def test_each_turn_is_capped(tiny, engine, tokenizer):
    """OpenRLHF's own executor gives each turn the whole context, whatever was asked for."""
    executor = rollout.GemAgentExecutor(tiny("limits.max_tokens_per_turn=2"))
    response = play(executor, engine, tokenizer)
    episode, _, _ = response["label"]
    assert {params.max_tokens for _, params in engine.requests} == {2}
    assert {turn.finish_reason for turn in episode.turns} == {FinishReason.LENGTH}
    assert response["truncated"]


def test_sampling_parameters_are_not_shared(tiny, engine, tokenizer):
    """One object serves all samples of a prompt; whoever writes to it changes the others."""
    params = SamplingParams(max_tokens=16, min_tokens=1, temperature=0.5)
    before = SamplingParams(**vars(params))
    executor = rollout.GemAgentExecutor(
        tiny("sampling.top_k=3", "limits.max_episode_tokens=60", "batch.group_size=2")
    )

    async def two():
        calls = [executor.execute("p", "train/0", params, 512, tokenizer, engine) for _ in "ab"]
        return await asyncio.gather(*calls)

    asyncio.run(two())
    assert params == before
    requested = [params for _, params in engine.requests]
    assert len({id(params) for params in requested}) == len(requested)
    assert len({params.seed for params in requested}) == len(requested)
    assert {request_seed(0, "train", 0, member, 0) for member in (0, 1)} <= {
        params.seed for params in requested
    }
    for params in requested:
        assert (params.temperature, params.top_k, params.min_tokens) == (0.5, 3, 0)
        assert tokenizer.eos_token_id in params.stop_token_ids


def test_members_of_a_group_share_the_seed(tiny, engine, tokenizer):
    recipe = tiny("batch.group_size=4")
    executor = rollout.GemAgentExecutor(recipe)
    params = SamplingParams()

    async def step():
        labels = [row["label"] for row in rollout.dataset_rows(recipe, "train")[:3]]
        calls = [
            executor.execute("p", label, params, 512, tokenizer, engine)
            for label in labels
            for _ in range(4)
        ]
        return [(await call)["label"][0] for call in calls]

    episodes = asyncio.run(step())
    assert [e.index for e in episodes] == list(range(12))
    assert [e.group for e in episodes] == [k // 4 for k in range(12)]
    assert [e.seed for e in episodes] == [train_task(recipe, k).seed for k in range(12)]


def test_rows_cover_the_run_and_the_evaluation(tiny):
    recipe = tiny("train.steps=3", "batch.group_size=2", "eval.every=1", "eval.inside_episodes=5")
    rows = rollout.dataset_rows(recipe, "train")
    assert [row["label"] for row in rows] == [
        f"train/{k}" for k in range(0, 3 * recipe.batch.episodes, 2)
    ]
    assert [r["label"] for r in rollout.dataset_rows(recipe, "eval")] == [
        f"eval/{k}" for k in range(5)
    ]


def test_evaluation_rows_play_evaluation_seeds(tiny, engine, tokenizer):
    response = play(rollout.GemAgentExecutor(tiny()), engine, tokenizer, "eval/4")
    assert response["label"][0].seed == -5


def test_log_probabilities_are_those_of_the_actions(tiny, engine, tokenizer):
    params = SamplingParams(logprobs=1)
    response = play(rollout.GemAgentExecutor(tiny()), engine, tokenizer, params=params)
    actions = set()
    for start, end in response["action_ranges"]:
        actions.update(range(start, end))
    for position, value in enumerate(response["rollout_log_probs"]):
        assert value == (-0.25 if position in actions else 0.0)


def test_missing_log_probabilities_are_an_error(tiny, engine, tokenizer):
    engine_generate = engine.generate

    async def without(prompt_ids, params, multi_modal_data=None):
        output = await engine_generate(prompt_ids, params)
        output.outputs[0].logprobs = None
        return output

    engine.generate = without
    with pytest.raises(GemError, match="log-probabilities"):
        play(rollout.GemAgentExecutor(tiny()), engine, tokenizer, params=SamplingParams(logprobs=1))


def test_an_aborted_request_ends_the_episode_typed(tiny, engine, tokenizer):
    engine_generate = engine.generate

    async def abort_second(prompt_ids, params, multi_modal_data=None):
        output = await engine_generate(prompt_ids, params)
        if len(engine.requests) == 2:
            output.outputs[0].finish_reason = "abort"
        return output

    engine.generate = abort_second
    response = play(rollout.GemAgentExecutor(tiny()), engine, tokenizer)
    assert response["label"][0].stop_reason is StopReason.ABORTED
    assert response["action_ranges"] == []


def test_a_slow_environment_does_not_block_the_engine(tiny, engine, tokenizer, register_slow):
    """OpenRLHF awaits ``step`` inside the engine's loop, so that every request waits."""
    import msgspec

    from gem_core.runs.recipe.recipe import EnvConfig

    recipe = msgspec.structs.replace(tiny(), env=[EnvConfig(id=register_slow)])
    executor = rollout.GemAgentExecutor(recipe)
    ticks = []

    async def together():
        async def tick():
            while True:
                ticks.append(None)
                await asyncio.sleep(0.01)

        clock = asyncio.ensure_future(tick())
        calls = [
            executor.execute("p", f"train/{k}", SamplingParams(), 512, tokenizer, engine)
            for k in range(3)
        ]
        responses = await asyncio.gather(*calls)
        clock.cancel()
        return responses

    responses = asyncio.run(together())
    assert len(ticks) > 5  # two blocking steps per episode; the loop kept running meanwhile
    for response in responses:
        episode, _, _ = response["label"]
        assert episode.stop_reason is StopReason.ENV_ERROR
        assert "no answer from outside" in episode.error
        assert response["action_ranges"] == []  # a failed episode keeps its row, untrained


def test_the_state_at_a_cut_is_kept_for_the_critic(tiny, engine, tokenizer):
    recipe = tiny("limits.max_turns=2")
    response = play(rollout.GemAgentExecutor(recipe), engine, tokenizer)
    episode, state, _ = response["label"]
    assert episode.stop_reason is StopReason.TRUNCATED_TURNS
    tokens = response["observation_tokens"]
    assert state[: len(tokens)] == tokens and len(state) > len(tokens)
    assert episode.final_observation in tokenizer.decode(state[len(tokens) :])


def test_an_episode_without_a_first_prompt_still_has_a_row():
    from gem_core.episodes.data import Episode

    failed = Episode("game:X", 1, index=3, stop_reason=StopReason.ENV_ERROR)
    response = rollout.to_native(failed)
    assert len(response["observation_tokens"]) == len(response["rollout_log_probs"]) == 2
    assert response["action_ranges"] == []
