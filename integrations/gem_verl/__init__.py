"""gem-core in verl: the recipe's experiment on ``verl.trainer.main_ppo``."""

from __future__ import annotations

from gem_core.runs.install import install_line
from gem_core.runs.memory_layout import EngineMemory, MemoryLayout
from gem_core.runs.trainers import Trainer

_INSTALL = "pip install 'gem-core[verl]'"
# verl's wheel does not declare these modules; its trainer cannot be imported without them.
_MODULES = ("cachetools", "uvicorn", "fastapi", "zmq", "msgspec", "transfer_queue")
TRAINER = Trainer(
    name="verl",
    distribution="verl",
    tested=("0.9.1", "0.10"),
    python=((3, 10), (3, 13)),
    install=install_line("verl"),
    launch="gem_verl.launch:run",
    translate="gem_verl.config:translate",
    check_nodes="gem_adapters.ray_cluster:require_cluster",
    command="gem_verl.launch:command",
    modules=dict.fromkeys(_MODULES, _INSTALL),
    # ``trainer/config/engine/fsdp.yaml``: ``model_dtype: fp32``.
    memory=MemoryLayout(
        4,
        4,
        8,
        "full",
        14,
        "one",
        packed=True,
        default_tokens=16384,
        engine=EngineMemory(
            0.5,
            "actor_rollout_ref.rollout.gpu_memory_utilization",
            "actor_rollout_ref.rollout.free_cache_engine",
        ),
    ),
    eval_engines={
        "vllm": "gem_adapters.vllm_evaluation:stepping",
        "sglang": "gem_adapters.sglang_evaluation:stepping",
    },
)
