"""Turns that are sent to a vLLM server one by one; `benchmarks/engines` runs a real server."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from trl.generation import vllm_client
from trl.generation.vllm_generation import VLLMGeneration

from gem_core.env.interface import Env
from gem_core.env.registration import register
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.runs.tasks import train_task
from gem_trl.serving import CONNECTIONS, ServerPolicy, client_of_rank, has_server

STOP = 1
OPTIONS = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": None,
    "repetition_penalty": 1.1,
    "logprobs": 0,
    "structured_outputs_regex": None,
    "generation_kwargs": {"stop_token_ids": [STOP]},
}


class Meeting(Env):
    """The first episode's second turn ends when all turns of the second episode have ended."""

    ended = threading.Event()

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return super().reset(seed=seed, options=options)

    def _reset(self, options):
        return "go", {}

    def _step(self, action):
        self.turn += 1
        if self.first and self.turn == 2:
            assert self.ended.wait(30), "the second episode waits for the first"
        if not self.first and self.turn == 5:
            self.ended.set()
        return "on", 1.0, self.turn == 5, False, {}


register("trltest:Meeting-v0", f"{__name__}:Meeting")


class Client:
    """Keeps what it was asked; answers ``[7, STOP]``."""

    base_url = "http://127.0.0.1:1"

    def __init__(self):
        self.calls = []
        self.answer = [7, STOP]
        self.session = SimpleNamespace(get_adapter=self.get_adapter, mount=self.mount)
        self.connections = None

    def get_adapter(self, url):
        return Adapter(64, 3)

    def mount(self, url, adapter):
        self.connections = adapter.pool_maxsize, adapter.max_retries

    def generate(self, prompts, **options):
        self.calls.append({"prompts": prompts, **options})
        if isinstance(self.answer, Exception):
            raise self.answer
        answers = [self.answer] * len(prompts)
        logprobs = [[[-0.5]] * len(self.answer)] * len(prompts)
        return {"prompt_ids": prompts, "completion_ids": answers, "logprobs": logprobs}


class Adapter:
    def __init__(self, pool_maxsize, max_retries):
        self.pool_maxsize = pool_maxsize
        self.max_retries = max_retries


@pytest.fixture
def served(make_trainer):
    """``served(client, *keys)``: a trainer over TRL's own code for a server."""

    def make(client, *keys):
        trainer = make_trainer(*keys)
        engine = object.__new__(VLLMGeneration)
        fields = {"accelerator": trainer.accelerator, "mode": "server", "vllm_client": client}
        vars(engine).update(OPTIONS, **fields, max_completion_length=8)
        trainer.use_vllm = True
        trainer.vllm_mode = "server"
        trainer.vllm_generation = engine
        trainer._last_loaded_step = 0
        trainer.engine_policy.stop_ids = frozenset([STOP])
        return trainer

    return make


def test_a_turn_is_asked_for_as_in_trls_own_call(served):
    client = Client()
    trainer = served(client)
    trainer._generate_single_turn([[5, 6]], None, {}, 1)
    policy = trainer.engine_policy
    with ServerPolicy(trainer, client, policy._completion, 1) as server:
        answer = asyncio.run(server.complete(Request([5, 6], 4, None)))
    own, ours = client.calls
    own.pop("features")
    changed = {"max_tokens": 4, "generation_kwargs": {"stop_token_ids": [STOP], "max_tokens": 4}}
    assert ours == own | changed
    assert (answer.token_ids, answer.logprobs) == ([7, STOP], [-0.5, -0.5])


def test_no_episode_waits_for_the_environment_of_another(served):
    trainer = served(Client())
    Meeting.ended.clear()
    machines = []
    for index in range(2):
        machine = trainer.machines(train_task(trainer.recipe, index))
        machine.env = Meeting()
        machine.env.first = index == 0
        machines.append(machine)
    episodes = trainer.engine_policy.play(machines)
    assert [len(episode.turns) for episode in episodes] == [5, 5]
    assert [episode.error for episode in episodes] == [None, None]


def test_changed_weights_are_sent_before_all_ranks_go_on(served):
    client = Client()
    trainer = served(client)
    order = []
    trainer.vllm_generation.sync_weights = lambda: order.append("weights")
    trainer.accelerator = SimpleNamespace(wait_for_everyone=lambda: order.append("wait"))
    trainer.state.global_step = 1
    for _ in range(2):
        with ServerPolicy(trainer, client, None, 1):
            assert not client.calls
    assert order == ["weights", "wait", "wait"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [(RuntimeError("Request failed: 500"), RuntimeError), ([7, 7], GemError)],
)
def test_what_the_server_cannot_do_ends_the_batch(served, answer, error):
    """A failed request, and an answer that has neither a stop token nor the cap's length."""
    client = Client()
    client.answer = answer
    trainer = served(client, "limits.max_tokens_per_turn=8")
    machines = [trainer.machines(train_task(trainer.recipe, index)) for index in range(3)]
    for machine in machines:
        machine.env = Meeting()
    with pytest.raises(error):
        trainer.engine_policy.play(machines)
    assert not [t for t in threading.enumerate() if t.name.startswith("gem-trl-server")]


def test_the_other_ranks_make_clients_of_their_own(monkeypatch):
    made = []

    def new_client(**options):
        made.append(options)
        return Client()

    monkeypatch.setattr(vllm_client, "VLLMClient", new_client)
    engine = SimpleNamespace(
        server_base_url=None, server_host="10.0.0.1", server_port=8001, server_timeout=9.0
    )
    client_of_rank(engine)
    engine.server_base_url = "http://there:80"
    client_of_rank(engine)
    addresses = [options["base_url"] for options in made]
    assert addresses == ["http://10.0.0.1:8001", "http://there:80"]
    assert made[0]["connection_timeout"] == 9.0
    engine.vllm_client = Client()
    assert client_of_rank(engine) is engine.vllm_client and len(made) == 2
    assert engine.vllm_client.connections == (CONNECTIONS, 3), "TRL's own retries"


def test_who_has_a_server(served):
    trainer = served(Client())
    assert has_server(trainer)
    trainer.vllm_mode = "colocate"
    assert not has_server(trainer)
    trainer.vllm_mode, trainer.use_vllm = "server", False
    assert not has_server(trainer)
