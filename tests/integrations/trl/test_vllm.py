"""What the adapter adds to TRL's vLLM engine; `benchmarks/engines` runs a real one."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import pytest
from transformers import AutoTokenizer, PreTrainedConfig
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from gem_adapters.engine_state import EngineState
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError, RecipeError, RunError
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path
from gem_trl.config import translate
from gem_trl.policy import EnginePolicy
from gem_trl.stepping import SteppingPolicy, can_step
from gem_trl.trainer import GemTrainer
from gem_trl.vllm import CPU_VARIABLE, awake, engine_length, engine_options, require_server

SERVER = {
    "dtype": "torch.float32",
    "logprobs_mode": "LogprobsMode.PROCESSED_LOGPROBS",
    "max_model_len": 520,
}


class Llm:
    """Notes what TRL's own code asks of a colocated engine, and refuses a wrong order."""

    def __init__(self):
        self.calls = []
        self.state = EngineState()
        model = SimpleNamespace(load_weights=self.load)
        runner = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        executor = SimpleNamespace(driver_worker=runner)
        self.llm_engine = SimpleNamespace(model_executor=executor)

    def load(self, pairs):
        self.state.load()
        self.calls.append("load")

    def sleep(self, level):
        self.state.sleep(level)
        self.calls.append("sleep")

    def wake_up(self, tags):
        self.state.wake_up(tags)
        self.calls += [f"wake {tag}" for tag in tags]

    def reset_prefix_cache(self):
        self.state.reset_cache()
        self.calls.append("reset")

    def generate(self, prompts, sampling_params, use_tqdm):
        self.state.ask()
        self.calls.append("generate")
        token = SimpleNamespace(logprob=-0.5, rank=1)
        output = SimpleNamespace(token_ids=[7], logprobs=[{7: token}])
        return [
            SimpleNamespace(prompt_token_ids=p["prompt_token_ids"], outputs=[output])
            for p in prompts
        ]


@pytest.fixture
def sleeping(make_trainer, monkeypatch):
    """A trainer over TRL's own code for a colocated engine with sleep mode."""
    monkeypatch.setattr(vllm_generation, "SamplingParams", SimpleNamespace, raising=False)
    trainer = make_trainer()
    engine = object.__new__(VLLMGeneration)
    weights = {"one": trainer.model.model.norm.weight}
    vars(engine).update(
        accelerator=trainer.accelerator,
        model=trainer.model,
        mode="colocate",
        llm=Llm(),
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_p=None,
        repetition_penalty=1.0,
        max_completion_length=8,
        enable_sleep_mode=True,
        _llm_weights_sleeping=True,
        logprobs=0,
        structured_outputs_regex=None,
        generation_kwargs={},
        tensor_parallel_size=1,
    )
    engine._iter_named_params = lambda: iter(weights.items())
    trainer.use_vllm = True
    trainer.vllm_mode = "colocate"
    trainer.vllm_generation = engine
    trainer._last_loaded_step = 0
    return trainer


def turns(trainer, count):
    for _ in range(count):
        trainer._generate_single_turn([[1, 2]], None, {}, 1)


def test_an_engine_sleeps_once_per_batch(sleeping):
    calls = sleeping.vllm_generation.llm.calls
    with awake(sleeping):
        turns(sleeping, 3)
    expected = ["wake weights", "load", "reset", "wake kv_cache", *["generate"] * 3, "sleep"]
    assert calls == expected
    calls.clear()
    with awake(sleeping):
        turns(sleeping, 1)
    assert calls.count("load") == calls.count("sleep") == 1
    calls.clear()
    turns(sleeping, 3)  # what TRL does by itself
    assert calls.count("load") == calls.count("sleep") == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [("wake_up", "got weights while it slept"), ("reset_prefix_cache", "cache is of weights")],
)
def test_a_call_that_is_missing_is_found(sleeping, monkeypatch, call, message):
    if call == "reset_prefix_cache":
        sleeping.vllm_generation.enable_sleep_mode = False  # asleep, it has no cache to reset
        turns(sleeping, 1)
        sleeping._last_loaded_step = -1
    monkeypatch.setattr(Llm, call, lambda *_, **__: None)
    if call == "wake_up":
        sleeping.vllm_generation.llm.sleep(level=2)
    with pytest.raises(GemError, match=message):
        turns(sleeping, 1)


def test_an_engine_without_sleep_mode_is_left_alone(sleeping):
    sleeping.vllm_generation.enable_sleep_mode = False
    with awake(sleeping):
        pass
    assert sleeping.vllm_generation.llm.calls == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_colocated_engine_has_the_recipes_precision(make_recipe, monkeypatch, dtype):
    def engine(**options):
        return options

    monkeypatch.setattr(vllm_generation, "LLM", engine, raising=False)
    with engine_options(dtype, "cpu"):
        assert vllm_generation.LLM(model="m")["dtype"] == dtype
    assert vllm_generation.LLM is engine


def test_an_engine_reports_what_could_be_drawn_where_it_can(monkeypatch):
    monkeypatch.setattr(
        vllm_generation,
        "LLM",
        lambda return_sampling_mask=False, **_: return_sampling_mask,
        raising=False,
    )
    with engine_options("float32", "cpu", reports_support=True):
        assert vllm_generation.LLM(model="m") is True
    with engine_options("float32", "cpu"):
        assert vllm_generation.LLM(model="m") is False
    monkeypatch.setattr(vllm_generation, "LLM", lambda model: model)
    with (
        pytest.raises(RunError, match="does not report which tokens could be drawn"),
        engine_options("float32", "cpu", reports_support=True),
    ):
        pass


@pytest.mark.parametrize(
    ("keys", "possible"),
    [
        (("sampling.top_k=20",), True),
        (("sampling.top_p=0.8",), False),  # vLLM reports them with a top-k only
        (("sampling.top_k=20", "hardware.engine_tensor_parallel=2"), False),
        (("sampling.top_k=20", "trainer.trl.vllm_mode=server"), False),
        (("sampling.top_k=20", "hardware.engine=hf"), False),
    ],
)
def test_on_a_gpu_vllm_inside_the_trainer_reports_what_could_be_drawn(keys, possible):
    recipe = load_recipe(
        "guess-the-number-easy",
        "paper",
        ["sampling.support=drawn", "hardware.gpus_per_node=2", *keys],
    )
    if possible:
        assert translate(recipe)["use_vllm"]
        return
    with pytest.raises(RecipeError, match=r"sampling\.support"):
        translate(recipe)


def test_trl_leaves_the_cache_of_prefixes_to_vllm(sleeping, monkeypatch):
    """vLLM keeps prefixes where nothing is said of it, and a turn's prompt is its history."""
    made = []

    def engine(**options):
        made.append(options)
        return Llm()

    monkeypatch.setattr(vllm_generation, "LLM", engine, raising=False)
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")  # TRL sets them; they are put back
    VLLMGeneration(sleeping.model, sleeping.accelerator, None, enable_sleep_mode=True)
    (options,) = made
    assert options["enable_sleep_mode"] and not [name for name in options if "prefix" in name]


@pytest.mark.parametrize(
    ("key", "value"),
    [("dtype", "torch.bfloat16"), ("logprobs_mode", "raw_logprobs"), ("max_model_len", 519)],
)
def test_a_server_that_samples_otherwise_is_refused(make_recipe, key, value):
    recipe = make_recipe()
    require_server(recipe, {"model_config": SERVER}, 520)
    with pytest.raises(RunError, match=f"{key} {value}.*--max-model-len 520"):
        require_server(recipe, {"model_config": SERVER | {key: value}}, 520)


@pytest.mark.parametrize(
    ("positions", "asked", "length"),
    [
        (None, 520, 520),  # nothing is known
        (1024, 520, 520),
        (516, 520, 516),  # the last turn ends with the positions
        (512, 520, 512),
        (256, 520, 512),  # the context of the recipe is not cut, vLLM decides
        (512, 600, 600),  # a length of the recipe's own
        (512, None, None),
    ],
)
def test_the_engine_has_no_more_than_the_models_positions(
    make_recipe, monkeypatch, positions, asked, length
):
    monkeypatch.setenv(CPU_VARIABLE, "1")
    keys = ("limits.max_context_tokens=512", "limits.max_tokens_per_turn=8")
    recipe = make_recipe("hardware.engine=vllm", *keys)
    config = PreTrainedConfig()
    if positions is not None:
        config.max_position_embeddings = positions
    assert translate(recipe)["vllm_max_model_length"] == 520
    assert engine_length(recipe, asked, config) == length


def test_the_engine_is_asked_for_the_models_positions(make_recipe, monkeypatch, tmp_path):
    monkeypatch.setenv(CPU_VARIABLE, "1")
    positions = make_recipe().model.tiny.max_positions
    recipe = make_recipe("hardware.engine=vllm", f"limits.max_context_tokens={positions}")
    source = model_path(recipe)
    made = {}

    class Asked(GemTrainer):
        def __init__(self, recipe, machines, *, args, **_):
            made["length"] = args.vllm_max_model_length

    Asked.from_recipe(recipe, source, AutoTokenizer.from_pretrained(source), tmp_path)
    assert translate(recipe)["vllm_max_model_length"] > positions == made["length"]


def test_vllm_on_a_cpu_is_for_tests(make_recipe, monkeypatch):
    recipe = make_recipe("hardware.engine=vllm")
    with pytest.raises(RecipeError, match="engine"):
        translate(recipe)
    monkeypatch.setenv(CPU_VARIABLE, "1")
    native = translate(recipe)
    assert native["use_vllm"] and native["generation_kwargs"]["max_tokens"] > 0
    assert not translate(make_recipe())["use_vllm"]


def test_an_engine_on_several_gpus():
    keys = ["hardware.device=gpu", "hardware.gpus_per_node=4"]
    keys += ["hardware.engine_tensor_parallel=2"]

    def paper(*more):
        return load_recipe("guess-the-number-easy", "paper", [*keys, *more])

    assert translate(paper())["vllm_tensor_parallel_size"] == 2
    with pytest.raises(RecipeError, match=r"engine_tensor_parallel = 2: .* server"):
        translate(paper("trainer.trl.vllm_mode=server"))
    with pytest.raises(RecipeError, match=r"engine_tensor_parallel = 3"):
        translate(paper("hardware.nodes=3", "hardware.engine_tensor_parallel=3"))
    with pytest.raises(RecipeError, match=r"engine_tensor_parallel = 2"):
        translate(paper("hardware.engine=hf", "algorithm.rollout_correction=none"))


class StepEngine:
    """vLLM's step loop, in which a request ends at once."""

    def __init__(self):
        self.added = {}

    def add_request(self, name, prompt, params):
        self.added[name] = params

    def has_unfinished_requests(self):
        return False

    def step(self):
        end = SimpleNamespace(logprob=0.0)
        row = SimpleNamespace(token_ids=[1], logprobs=[{1: end}], finish_reason="stop")
        names = list(self.added)
        return [SimpleNamespace(request_id=n, finished=True, outputs=[row]) for n in names]


@pytest.fixture
def stepping(sleeping, monkeypatch):
    """``stepping(engine)``: a policy over a step loop."""
    parameters = ModuleType("vllm.sampling_params")
    parameters.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    package = ModuleType("vllm")
    package.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)

    def make(engine):
        sleeping.vllm_generation.llm.llm_engine = engine
        return SteppingPolicy(sleeping, [1])

    return make


def test_a_request_is_sampled_as_in_trls_own_call(stepping, sleeping):
    """The loop itself is tested in tests/adapters/test_vllm_steps.py."""
    engine = StepEngine()
    sleeping.vllm_generation.generation_kwargs = {"stop_token_ids": [1]}
    sleeping.vllm_generation.temperature = 0.7
    policy = stepping(engine)

    async def run():
        requests = [Request([5], cap, None) for cap in (3, 9)]
        return await asyncio.gather(*map(policy.complete, requests))

    assert [answer.token_ids for answer in asyncio.run(run())] == [[1], [1]]
    params = list(engine.added.values())
    assert [p.max_tokens for p in params] == [3, 9]
    assert all(p.temperature == 0.7 and p.stop_token_ids == [1] for p in params)
    assert all(p.logprobs == 0 and p.output_kind == "final" for p in params)


def test_an_engine_that_reports_sets_is_greedy_by_a_set_of_one(stepping, sleeping, monkeypatch):
    """It refuses temperature 0."""
    engine = StepEngine()
    monkeypatch.setattr(type(sleeping), "over_drawn", True)
    sleeping.vllm_generation.temperature, sleeping.vllm_generation.top_k = 0.0, 20
    policy = stepping(engine)
    asyncio.run(policy.complete(Request([5], 3, None)))
    (params,) = engine.added.values()
    assert (params.temperature, params.top_k) == (1.0, 1)


def test_each_turn_is_a_request_of_its_own_where_sets_are_reported(sleeping, monkeypatch):
    policy = EnginePolicy(sleeping, [1])
    assert not policy._goes_one_by_one([])
    monkeypatch.setattr(type(sleeping), "over_drawn", True)
    assert policy._goes_one_by_one([])


def test_changed_weights_reach_the_engine_before_the_first_request(stepping, sleeping):
    sent = []
    sleeping.vllm_generation.sync_weights = lambda: sent.append(sleeping.state.global_step)
    stepping(StepEngine())
    assert sent == []
    sleeping.state.global_step = 1
    stepping(StepEngine())
    stepping(StepEngine())
    assert sent == [1]


def test_who_may_step(sleeping):
    assert can_step(sleeping)
    sleeping.vllm_generation.tensor_parallel_size = 2  # its ranks must make the same calls
    assert not can_step(sleeping)
    sleeping.vllm_generation.tensor_parallel_size = 1
    sleeping.vllm_mode = "server"
    assert not can_step(sleeping)
    sleeping.use_vllm = False
    assert not can_step(sleeping)
