"""Episodes against a scripted engine with sglang's interface."""

from __future__ import annotations

import asyncio

import pytest
import requests
import torch
from aiohttp import web
from RL2.datasets import initialize_state_dict

from gem_adapters.versions import VERSION
from gem_core.env.registration import register
from gem_core.envs.games.guess_the_number import GuessTheNumber
from gem_core.episodes.data import Completion, Episode, Segment, Turn
from gem_core.episodes.request_seed import request_seed
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.tasks import MachineFactory, step_tasks
from gem_core.training.tiny import model_path
from gem_replays.rl2 import batch as pack
from gem_rl2.advantages import Advantages
from gem_rl2.cpu import engine as cpu_engine
from gem_rl2.cpu.engine import Engine
from gem_rl2.rollout import EpisodePlayer, to_native


@pytest.fixture
def play(tokenizer, engine, tmp_path):
    """``play(recipe, reply, step=0)`` -> episodes and what the engine was asked."""

    def run(recipe, reply, step=0):
        directory = RunDir.create(tmp_path / "run", recipe, "rl2", if_exists="overwrite")
        run.player = EpisodePlayer(directory, tokenizer)
        sampling = {"temperature": 0.7, "top_k": -1}

        async def all_of_them(url):
            tasks = step_tasks(recipe, step)
            return await asyncio.gather(*(run.player.play(t, url, sampling) for t in tasks))

        with engine(reply) as (url, bodies):
            run.machines = asyncio.run(all_of_them(url))
        return run.player.take(), bodies

    return run


def test_what_the_engine_is_asked(tiny, tokenizer, play, answer_text):
    recipe = tiny("batch.episodes=4", "batch.group_size=2", "limits.max_tokens_per_turn=6")
    episodes, bodies = play(recipe, lambda n, body: answer_text("\\boxed{3}"))
    for body in bodies:
        assert body["return_logprob"] is True
        assert body["sampling_params"]["max_new_tokens"] == 6
        assert body["sampling_params"]["stop_token_ids"] == [tokenizer.eos_token_id]
        assert body["sampling_params"]["temperature"] == 0.7
    assert len(bodies) == sum(len(e.turns) for e in episodes)
    seeds = {body["sampling_params"]["sampling_seed"] for body in bodies}
    assert seeds == {
        request_seed(0, "train", e.seed, e.index, turn)
        for e in episodes
        for turn in range(len(e.turns))
    }
    assert len(seeds) == len(bodies)


def test_tokens_go_in_and_out_unchanged(tiny, play, answer_text):
    recipe = tiny("batch.episodes=2")
    answer = answer_text("\\boxed{11}")
    episodes, bodies = play(recipe, lambda n, body: answer)
    tensors, cu_seqs = pack(episodes)
    prompts = {tuple(body["input_ids"]) for body in bodies}
    action = [token for _, token, _ in answer["meta_info"]["output_token_logprobs"]]
    for number, episode in enumerate(episodes):
        (segment,) = episode.segments
        row = int(cu_seqs[number])
        length = len(segment.token_ids) - 1
        assert tensors["states"][row, :length].tolist() == segment.token_ids[:-1]
        for turn, start, end in segment.spans:
            assert tuple(segment.token_ids[:start]) in prompts
            assert segment.token_ids[start:end] == action
            assert tensors["actions"][row, start - 1 : end - 1].tolist() == action
            assert tensors["action_mask"][row, start - 1 : end - 1].tolist() == [1] * len(action)
            assert tensors["llm_logps"][row, start - 1 : end - 1].tolist() == [-0.5] * len(action)
            assert tensors["rewards"][row, end - 2] == pytest.approx(episode.turns[turn].reward)
        trained = sum(end - start for _, start, end in segment.spans)
        assert int(tensors["action_mask"][row].sum()) == trained


def test_rl2_would_tokenise_the_text_alike(tiny, tokenizer, play, answer_text):
    """RL2 0.0.2 tokenises text on its own: each piece of text must give the ids we train on."""
    recipe = tiny("batch.episodes=4")
    episodes, _ = play(recipe, lambda n, body: answer_text("\\boxed{5}"))
    factory = MachineFactory(recipe, tokenizer)
    for task, episode in zip(step_tasks(recipe, 0), episodes, strict=True):
        machine = factory(task)
        ids = machine.start()
        theirs = initialize_state_dict(tokenizer, machine.prompt_text)["states"]
        assert theirs == ids
        for _, start, end in episode.segments[0].spans:
            before = machine.prompt_text
            action = episode.segments[0].token_ids[start:end]
            ids = machine.feed(Completion(action, [-0.5] * len(action)))
            if ids is None:
                break
            after = machine.prompt_text[len(before) :]
            text = tokenizer.decode(action[:-1])
            assert after.startswith(text)
            observation = initialize_state_dict(tokenizer, after[len(text) :])["states"]
            theirs = theirs + action + observation
            assert theirs == ids


def test_step_s_plays_the_tasks_of_step_s(tiny, play, answer_text):
    recipe = tiny("batch.episodes=4", "batch.group_size=2", "seed=3")
    episodes, _ = play(recipe, lambda n, body: answer_text("\\boxed{1}"), step=5)
    assert [e.index for e in episodes] == [20, 21, 22, 23]
    assert [e.seed for e in episodes] == [3_000_000_010] * 2 + [3_000_000_011] * 2


def test_an_action_without_a_stop_token_is_cut(tiny, play, tokenizer, answer_ids):
    recipe = tiny("batch.episodes=2", "limits.max_tokens_per_turn=3")
    ids = tokenizer.encode("\\boxed{77", add_special_tokens=False)[:3]
    episodes, _ = play(recipe, lambda n, body: answer_ids(ids, "length"))
    assert all(turn.finish_reason.value == "length" for e in episodes for turn in e.turns)


def test_truncation_from_outside_ends_the_episode(tiny, play, answer_text):
    recipe = tiny("batch.episodes=2", "limits.max_turns=2")
    episodes, _ = play(recipe, lambda n, body: answer_text("\\boxed{99}"))
    assert {e.stop_reason.value for e in episodes} == {"truncated_turns"}
    assert all(e.turns[-1].truncated and len(e.turns) == 2 for e in episodes)


def test_the_state_of_a_cut_episode_is_there_for_a_critic(tiny, play, answer_text, tokenizer):
    recipe = tiny("batch.episodes=2", "limits.max_turns=2", "algorithm.estimator=gae")
    episodes, _ = play(recipe, lambda n, body: answer_text("\\boxed{99}"))
    finals = [machine.bootstrap_state() for machine in play.machines]
    for episode, ids in zip(episodes, finals, strict=True):
        before = episode.segments[0].token_ids
        assert ids[: len(before)] == before
        assert episode.final_observation in tokenizer.decode(ids[len(before) :])
    tensors, cu_seqs = pack(episodes, finals)
    assert cu_seqs.tolist() == [0, 2, 4]
    for number, ids in enumerate(finals):
        row = 2 * number + 1
        assert tensors["states"][row, : len(ids)].tolist() == ids
        assert tensors["eos_mask"][row].nonzero().tolist() == [[len(ids) - 1]]
        assert not tensors["action_mask"][row].any() and not tensors["rewards"][row].any()
    shape = tensors["states"].shape
    values = torch.arange(tensors["states"].numel()).view(shape) / 100.0
    tensors["values"] = values
    Advantages(recipe, episodes)(None, tensors, cu_seqs, 1)
    assert len(tensors["states"]) == len(tensors["advantages"]) == 2
    for number, episode in enumerate(episodes):
        last_prompt_token = episode.segments[0].spans[-1][1] - 1
        value = float(values[2 * number, last_prompt_token])
        bootstrap = float(values[2 * number + 1, len(finals[number]) - 1])
        expected = episode.turns[-1].reward + 0.9 * bootstrap - value
        advantage = float(tensors["advantages"][number, last_prompt_token])
        assert advantage == pytest.approx(expected, abs=1e-5)


def test_a_finished_episode_has_no_state_to_value(tiny, play, answer_text):
    play(tiny("batch.episodes=2"), lambda n, body: answer_text("x"))
    assert [machine.bootstrap_state() for machine in play.machines] == [[], []]


def test_an_aborted_request_is_not_trained_on(tiny, play, answer_text, answer_ids):
    recipe = tiny("batch.episodes=4")

    def first_is_aborted(number, body):
        return answer_ids([], "abort") if number == 0 else answer_text("x")

    episodes, _ = play(recipe, first_is_aborted)
    assert sum(e.stop_reason.value == "aborted" for e in episodes) == 1
    tensors, cu_seqs = pack(episodes)
    assert sorted((cu_seqs[1:] - cu_seqs[:-1]).tolist()) == [0, 1, 1, 1]
    assert len(tensors["states"]) == 3


class Raising(GuessTheNumber):
    """Breaks at its first step for every ``every``-th seed."""

    def __init__(self, every=2):
        super().__init__(min_number=1, max_number=10, max_turns=4)
        self.every = every
        self.broken = False

    def reset(self, *, seed=None, options=None):
        self.broken = seed % self.every == 0
        return super().reset(seed=seed, options=options)

    def _step(self, action):
        if self.broken:
            raise RuntimeError("scripted fault")
        return super()._step(action)


@pytest.fixture(scope="module")
def broken_env():
    register("rl2-test:Raising-v0", entry_point=f"{__name__}:Raising")
    return "rl2-test:Raising-v0"


def test_broken_environments_are_kept_as_records(tiny, play, answer_text, broken_env):
    recipe = tiny("batch.episodes=4", f'env=[{{id="{broken_env}", kwargs={{every=4}}}}]')
    episodes, _ = play(recipe, lambda n, body: answer_text("\\boxed{2}"))
    assert [e.stop_reason.failed for e in episodes] == [True, False, False, False]
    assert "scripted fault" in episodes[0].error
    assert pack(episodes)[1].tolist() == [0, 0, 1, 2, 3]


def test_a_batch_that_breaks_stops_the_run(tiny, play, answer_text, broken_env):
    recipe = tiny("batch.episodes=4", f'env=[{{id="{broken_env}", kwargs={{every=1}}}}]')
    with pytest.raises(GemError, match="scripted fault"):
        play(recipe, lambda n, body: answer_text("\\boxed{2}"))


def test_nothing_to_train_on_is_an_error_with_the_reason(tiny, play, answer_text):
    recipe = tiny("batch.episodes=2", "limits.max_context_tokens=4")
    episodes, bodies = play(recipe, lambda n, body: answer_text("x"))
    assert bodies == []
    play.player.played = dict(enumerate(episodes))
    with pytest.raises(GemError, match="context_overflow"):
        play.player.pack([])


def test_an_engine_fault_is_raised_with_its_text(tiny, play):
    def fault(number, body):
        return web.Response(status=500, text="out of memory")

    with pytest.raises(GemError, match="500: out of memory"):
        play(tiny("batch.episodes=2"), fault)


def test_an_engine_that_gave_its_memory_back_is_not_asked(tiny, serve):
    """RL2 has its memory released after a rollout, and taken again and filled before the next."""
    path = model_path(tiny("model.tiny.warm_start_steps=0"))
    body = {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 1, "stop_token_ids": []}}

    def call(name, **given):
        answer = requests.post(f"{url}/{name}", json=given, timeout=60)
        return answer.status_code, answer.text

    with serve(Engine(path)) as url:
        assert call("generate", **body)[0] == 200
        assert call("release_memory_occupation")[0] == 200
        asked = call("generate", **body)
        assert asked[0] == 500 and "while its weights and kv_cache slept" in asked[1]
        assert call("resume_memory_occupation")[0] == 200
        asked = call("generate", **body)
        assert asked[0] == 500 and "lost its weights in its sleep" in asked[1]


def test_actions_with_nothing_between_are_refused():
    """Two trained turns that touch: RL2's rows could not tell them apart."""
    segment = Segment(
        token_ids=[5, 6, 7, 8],
        loss_mask=[0, 1, 1, 1],
        logprobs=[0.0] * 4,
        spans=[(0, 1, 2), (1, 2, 4)],
    )
    episode = Episode("test", seed=0, turns=[Turn(0, "", "a"), Turn(1, "", "b")])
    episode.segments.append(segment)
    with pytest.raises(GemError, match="without a token between them"):
        to_native(episode)


def test_an_action_without_a_prompt_is_refused():
    segment = Segment(token_ids=[5, 6], loss_mask=[1, 1], logprobs=None, spans=[(0, 0, 2)])
    episode = Episode("test", seed=0, turns=[Turn(0, "", "a")], segments=[segment])
    with pytest.raises(GemError, match="begins with an action"):
        to_native(episode)


def test_the_engine_samples_with_the_weights_that_are_asked_for(tiny, serve, monkeypatch):
    monkeypatch.setattr(cpu_engine, "count_kept_versions", lambda: 1)
    server = Engine(model_path(tiny()))
    sampling = {"max_new_tokens": 3, "stop_token_ids": [], "sampling_seed": 0}
    body = {"input_ids": [1, 2], "sampling_params": sampling}
    with serve(server) as url:

        def ask(**also):
            return requests.post(f"{url}/generate", json=body | also, timeout=60)

        first = ask().json()["meta_info"]
        with torch.no_grad():
            for weight in server.model.parameters():
                weight.mul_(1.5)
        requests.post(f"{url}/{VERSION}", json={"version": 1}, timeout=60).raise_for_status()
        newest, old = ask().json()["meta_info"], ask(**{VERSION: 0}).json()["meta_info"]
        drawn = [answer["output_token_logprobs"] for answer in (first, newest, old)]
        assert drawn[2] == drawn[0] != drawn[1]
        assert [answer[VERSION] for answer in (first, newest, old)] == [0, 1, 0]
        requests.post(f"{url}/{VERSION}", json={"version": 2}, timeout=60).raise_for_status()
        refused = ask(**{VERSION: 0})
        assert refused.status_code == 500 and "of the steps [1, 2]" in refused.text
