"""The overrides, composed and validated by verl's own configuration files."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from gem_adapters.native_keys import bare, parents
from gem_core.env.registration.references import TRUST_VARIABLE
from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_verl.config import NATIVE_DEFAULTS, NATIVE_OWNED, translate
from gem_verl.cpu import harness
from gem_verl.cpu.local import configuration
from gem_verl.launch import RAY_RUN, RAY_VARIABLES, run_settings, session
from gem_verl.native import native_keys
from gem_verl.rollout import TaskDataset, read_recipe
from gem_verl.values import ATTENTION


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """Without it, native keys with texts are refused as such."""
    monkeypatch.setenv(TRUST_VARIABLE, "1")


def paper(*overrides):
    return load_recipe("guess-the-number-easy", "paper", overrides)


def composed(recipe, model="model"):
    """verl's configuration, which verl itself finds valid."""
    config = configuration(recipe, model, **{"critic.model.path": model})
    validate_config(config, need_reference_policy(config), need_critic(config))
    return config


@pytest.mark.parametrize(("engine", "length"), [("vllm", 12800), ("sglang", 12801)])
def test_the_paper_profile_on_gpus(engine, length):
    config = composed(paper(f"hardware.engine={engine}"))
    actor = config.actor_rollout_ref.actor
    rollout = config.actor_rollout_ref.rollout
    assert rollout.name == engine and rollout.max_model_len == length
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (1, 8)
    assert config.trainer.device == "cuda" and "address" not in config.ray_kwargs.ray_init
    assert (actor.optim.lr, list(actor.optim.betas)) == (1e-6, [0.9, 0.95])
    assert (actor.ppo_epochs, actor.ppo_mini_batch_size) == (2, 128)
    assert (actor.kl_loss_type, config.algorithm.use_kl_in_reward) == ("low_var_kl", False)
    assert actor.checkpoint.load_contents == ["model", "optimizer", "extra"]
    assert (config.algorithm.adv_estimator, config.algorithm.gamma) == ("gem_rebn", 0.9)
    assert (actor.strategy, actor.use_dynamic_bsz) == ("fsdp2", False)
    assert actor.ppo_micro_batch_size_per_gpu == 1
    assert config.data.max_prompt_length == config.data.max_response_length == 12800
    assert not need_critic(config) and not need_reference_policy(config)
    assert "gem_hf" not in str(config), "the CPU backend got into a GPU run"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_several_nodes_join_a_running_ray_cluster(engine):
    keys = ["hardware.nodes=4", "hardware.gpus_per_node=8", "batch.micro_batch=2"]
    config = composed(paper(*keys, f"hardware.engine={engine}"))
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (4, 8)
    assert config.ray_kwargs.ray_init.address == "auto"
    assert config.actor_rollout_ref.rollout.name == engine
    assert config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 2
    assert not config.actor_rollout_ref.actor.use_dynamic_bsz


def test_ppo_has_a_critic_and_kl_a_reference_model(model_dir):
    keys = ["algorithm.estimator=gae", "algorithm.kl_coef=0.01", "algorithm.critic_lr=1e-5"]
    config = composed(paper(*keys), model_dir)
    assert need_critic(config) and need_reference_policy(config)
    assert config.critic.optim.lr == 1e-5 and config.critic.strategy == "fsdp2"
    assert config.actor_rollout_ref.actor.kl_loss_coef == 0.01
    assert config.algorithm.use_kl_in_reward is False


@pytest.mark.parametrize(
    ("aggregation", "mode"),
    [("token", "token-mean"), ("sequence", "seq-mean-token-mean")],
)
def test_loss_aggregation(aggregation, mode):
    config = composed(paper(f"algorithm.loss_aggregation={aggregation}"))
    assert config.actor_rollout_ref.actor.loss_agg_mode == mode


PREFIXES = ("", "+", "++", "~")
RUN_KEY = bare(RAY_RUN)
TRUST_KEY = bare(f"{RAY_VARIABLES}.{TRUST_VARIABLE}")


def with_native(table, recipe=None):
    """A recipe with ``table`` as its ``[trainer.verl]``."""
    recipe = recipe or paper()
    return recipe_from_dict(recipe.to_dict() | {"trainer": {"verl": table}})


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_owned_native_key_is_refused_by_name(prefix):
    for key, reason in NATIVE_OWNED.items():
        with pytest.raises(RecipeError) as error:
            translate(with_native({f"{prefix}{key}": 1}))
        assert str(error.value) == f"trainer.verl.{key}: {reason}."


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_the_stand_ins_need_is_refused_on_a_cpu_only(prefix, tiny):
    for key, reason in {**harness.NATIVE_OWNED, **NATIVE_OWNED}.items():
        with pytest.raises(RecipeError) as error:
            translate(with_native({f"{prefix}{key}": 1}, tiny()))
        assert str(error.value) == f"trainer.verl.{key}: {reason}."
    translate(with_native({"critic.model.use_remove_padding": False}))


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("actor_rollout_ref.actor.optim.lr", "set algorithm.lr instead"),
        ("critic.optim.lr", "set algorithm.critic_lr instead"),
        ("critic.ppo_epochs", "set algorithm.epochs instead"),
        ("algorithm.adv_estimator", "set algorithm.estimator instead"),
        ("actor_rollout_ref.model.path", "set model.path instead"),
        ("trainer.use_v1", "the adapter needs True there"),
        ("data.custom_cls.name", "the adapter needs 'TaskDataset' there"),
    ],
)
def test_the_refusal_says_what_to_do_instead(key, instead):
    assert NATIVE_OWNED[key] == instead


@pytest.mark.parametrize(
    ("key", "owned"),
    [
        ("~data.custom_cls", "data.custom_cls.path"),
        ("~trainer.v1", "trainer.v1.trainer_mode"),
        ("+algorithm.gem_options.eps", "algorithm.options"),
    ],
)
def test_a_key_that_holds_an_owned_one_or_lies_in_it_is_refused(key, owned):
    name = re.escape(key.lstrip("+~"))
    with pytest.raises(RecipeError, match=rf"trainer\.verl\.{name}: .*{re.escape(owned)}"):
        translate(with_native({key: 1}))


def test_nested_tables_are_dotted_keys():
    with pytest.raises(RecipeError, match=r"trainer\.verl\.data\.shuffle: "):
        translate(with_native({"data": {"shuffle": True}}))
    config = composed(with_native({"trainer": {"critic_warmup": 7}}))
    assert config.trainer.critic_warmup == 7


def native_names(recipe):
    return {bare(text.partition("=")[0]) for text in translate(recipe)}


EVERYTHING = [
    "algorithm.estimator=gae",
    "algorithm.kl_coef=0.01",
    "algorithm.options={whiten=true}",
    "batch.micro_batch=2",
]
FLOAT32 = ["model.dtype=float32", "batch.micro_batch=2", f"trainer.verl.+{ATTENTION}=sdpa"]


@pytest.mark.parametrize(
    "overrides",
    [
        EVERYTHING,
        [*EVERYTHING, "hardware.nodes=2"],
        [*EVERYTHING, "hardware.engine=sglang"],
        FLOAT32,
    ],
)
def test_a_native_key_that_is_set_is_owned_or_a_default(overrides):
    recipe = paper(*overrides)
    names = native_names(recipe) - {"algorithm.gem_options.whiten", ATTENTION}
    defaults = {bare(key) for key in NATIVE_DEFAULTS}
    assert names - defaults <= NATIVE_OWNED.keys()
    assert not defaults & NATIVE_OWNED.keys()


def test_a_native_key_that_is_set_for_a_run_is_owned(tiny, tmp_path):
    recipe = tiny()
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    assert {bare(key) for key in run_settings(recipe, run)} <= NATIVE_OWNED.keys()
    with session(recipe) as (settings, _):
        assert {bare(key) for key in settings} <= harness.NATIVE_OWNED.keys()
    names = native_names(recipe) - NATIVE_OWNED.keys() - harness.NATIVE_OWNED.keys()
    defaults = {**NATIVE_DEFAULTS, **harness.DEFAULTS, **harness.RAY_DEFAULTS}
    assert names <= {bare(key) for key in defaults}


def test_owned_keys_are_verls():
    """All but those that the adapter adds: a key that verl renamed would protect nothing."""
    added = {"algorithm.gem_options", "data.gem_recipe", "data.gem_run", RUN_KEY, TRUST_KEY}
    tables = {table for key in native_keys() for table in parents(key)}
    unknown = NATIVE_OWNED.keys() - native_keys().keys() - tables - added
    optional = {key for key, value in native_keys().items() if value is None}  # a user's table
    unknown = {key for key in unknown if not optional & set(parents(key))}
    # Fields of verl's dataclasses that its files leave out.
    unknown -= {"critic.ppo_infer_max_token_len_per_gpu"}
    assert {key for key in unknown if ".mixed_precision." not in key} == set()


@pytest.mark.parametrize("key", NATIVE_DEFAULTS)
def test_a_default_can_be_changed(key):
    overrides = translate(with_native({key: "other"}, paper("hardware.nodes=2")))
    assert [text for text in overrides if bare(text).startswith(f"{bare(key)}=")] == [
        f"{key}='other'"
    ]


def test_native_keys_pass_through_and_come_last():
    table = {
        "trainer.critic_warmup": 7,
        "actor_rollout_ref.actor.tau_pos": 1.25,
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.max_num_seqs": 64,
        "++trainer.project_name": "mine",
        "~trainer.esi_redundant_time": None,
    }
    recipe = with_native(table)
    config = composed(recipe)
    assert config.trainer.critic_warmup == 7
    assert config.actor_rollout_ref.actor.tau_pos == 1.25
    assert config.actor_rollout_ref.rollout.engine_kwargs.vllm.max_num_seqs == 64
    assert config.trainer.project_name == "mine"
    assert "esi_redundant_time" not in config.trainer
    last = [text.partition("=")[0] for text in translate(recipe)[-len(table) :]]
    assert last == list(table)


UNSOUND = {
    "algorithm.filter_groups.enable": (True, "trains on other tasks"),
    "algorithm.filter_groups.metric": ("acc", "trains on other tasks"),
    "trainer.v1.trainer_mode": ("separate_async", "finished first"),
    "trainer.v1.colocate_async.num_warmup_batches": (2, "finished first"),
    "trainer.v1.separate_async.parameter_sync_step": (2, "finished first"),
    "trainer.v1.sampler.max_off_policy_strategy": ("drop", "finished first"),
    "trainer.v1.sampler.sync_refill_failed_groups": (True, "exchanges no group"),
    "algorithm.rollout_correction.rollout_rs": ("token_k1", "for two turns"),
    "trainer.save_freq": (3, "set train.save_every"),
    "actor_rollout_ref.actor.ppo_mini_batch_size": (3, "set algorithm.minibatches"),
    "critic.ppo_mini_batch_size": (3, "set algorithm.minibatches"),
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": (9, "set batch.max_tokens_per_device"),
    "actor_rollout_ref.model.lora_rank": (4, "set model.lora.rank"),
}
"""Native keys with a value, and a part of why they are refused."""


@pytest.mark.parametrize("key", UNSOUND)
def test_what_would_be_overwritten_or_change_the_experiment_is_refused(key):
    value, reason = UNSOUND[key]
    with pytest.raises(RecipeError, match=f"{re.escape(key)}.*{reason}"):
        translate(with_native({key: value}))


def test_parallelism_and_memory_keys_are_valid_for_verl(model_dir):
    keys = [
        "hardware.sequence_parallel=2",
        "hardware.engine_tensor_parallel=4",
        "hardware.sharding=optimizer",
        "hardware.offload=all",
        "batch.max_tokens_per_device=6400",
        "model.lora.rank=8",
        "algorithm.estimator=gae",
    ]
    config = composed(paper(*keys), model_dir)
    actor = config.actor_rollout_ref.actor
    assert actor.fsdp_config.ulysses_sequence_parallel_size == 2
    assert (actor.fsdp_config.param_offload, actor.fsdp_config.optimizer_offload) == (True, True)
    assert actor.fsdp_config.reshard_after_forward is False
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 4
    assert omega_conf_to_dataclass(config.critic).ppo_infer_max_token_len_per_gpu == 6400


def test_an_unknown_native_key_is_an_error_with_a_guess():
    with pytest.raises(RecipeError, match=r"no such key\. Did you mean '.*trainer\.critic_warmup"):
        translate(with_native({"trainer.critic_warmpu": 7}))
    with pytest.raises(RecipeError, match=r"write '\+trainer\.something_else'"):
        translate(with_native({"trainer.something_else": 1}))


def test_a_gpu_recipe_does_not_import_the_cpu_backend():
    code = (
        "import sys; from gem_core.runs.recipe.load import load_recipe; "
        "from gem_verl.config import translate; from gem_verl.launch import session; "
        "recipe = load_recipe('guess-the-number-easy', 'paper'); translate(recipe); "
        "session(recipe).__enter__(); "
        "print([name for name in sys.modules if name.startswith('gem_verl.cpu')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "it's \\'quoted\\'",
        'a "b" \\" c',
        "${oc.env:HOME} $x",
        "back\\slash\\",
        "é\n{x: 1}",
    ],
)
def test_a_recipe_arrives_as_it_was_sent(text):
    recipe = paper("context.template=chat")
    data = recipe.to_dict()
    data["context"]["system"] = text
    recipe = recipe_from_dict(data)
    config = configuration(recipe, f"model {text}".replace("${", "$("))
    assert json.loads(config.data.gem_recipe) == json.loads(json.dumps(recipe.to_dict()))
    assert read_recipe(config.data.gem_recipe) == recipe


def test_the_dataset_is_the_recipes_tasks(tiny):
    recipe = tiny("train.steps=3", "eval.every=1", "eval.inside_episodes=5")
    data = configuration(recipe, "model").data
    assert len(TaskDataset(data.train_files, data)) == 24
    assert len(TaskDataset(data.val_files, data)) == 5
    assert TaskDataset(data.val_files, data)[2]["data_source"] == "gem:eval"
    assert [TaskDataset(data.train_files, data)[i]["index"] for i in (0, 23)] == [0, 23]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["algorithm.kl_in=reward", "algorithm.kl_coef=0.1"], "algorithm.kl_in"),
        (["algorithm.lr_schedule=linear"], "algorithm.lr_schedule"),
        (["hardware.engine=hf"], "hardware.engine"),
        (["hardware.device=cpu", "hardware.engine=sglang"], "hardware.engine"),
        (["hardware.tensor_parallel=2"], "hardware.tensor_parallel"),
        (["hardware.sharding=none"], "hardware.sharding"),
        (["hardware.sequence_parallel=3"], "hardware.sequence_parallel"),
        (["hardware.engine_tensor_parallel=3"], "hardware.engine_tensor_parallel"),
        (
            ["hardware.device=cpu", "hardware.sequence_parallel=2", "hardware.gpus_per_node=2"],
            "hardware.sequence_parallel",
        ),
        (["model.lora.rank=4", "model.lora.alpha=2.5"], "model.lora.alpha"),
        (["batch.max_tokens_per_device=12799"], "batch.max_tokens_per_device"),
        (["train.steps=0"], "train.steps"),
    ],
)
def test_what_verl_cannot_honour_is_refused_by_name(overrides, key):
    with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
        translate(paper(*overrides))
