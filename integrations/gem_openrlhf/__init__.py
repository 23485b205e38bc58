"""OpenRLHF adapter: gem-core recipes on the released ``openrlhf.cli.train_ppo_ray``."""

from __future__ import annotations

from gem_core.runs.install import install_line
from gem_core.runs.memory_layout import EngineMemory, MemoryLayout
from gem_core.runs.trainers import Trainer

TRAINER = Trainer(
    name="openrlhf",
    distribution="openrlhf",
    tested=("0.11.2", "0.12"),
    python=((3, 10), (3, 13)),
    install=install_line("openrlhf"),
    launch="gem_openrlhf.launch:run",
    translate="gem_openrlhf.config:translate",
    check_nodes="gem_adapters.ray_cluster:require_cluster",
    # flash_attn and vllm are asked for only where a GPU is (see _compat.require_gpu_packages).
    modules={
        "ray": "pip install 'ray[default]==2.55.0'",
        "deepspeed": "pip install deepspeed==0.19.6",
    },
    # ``ds.zero_stage`` 2; ``models/actor.py`` makes logits float32.
    memory=MemoryLayout(
        2,
        2,
        12,
        "optimizer",
        # The float32 logits, the softmax of the entropy, which is computed also where it is no part
        # of the loss, and the logits' gradient by flash-attn's kernel, in float32 and bfloat16.
        14,
        "minibatch",
        packed=True,
        bytes_with_entropy=28,
        reduce_bucket=2 * 500_000_000,  # DeepSpeed's default ``reduce_bucket_size``, in bfloat16
        whole_gradients=True,
        engine=EngineMemory(0.6, "vllm.gpu_memory_utilization", "vllm.enable_sleep", beside=False),
    ),
    eval_engines={"vllm": "gem_adapters.vllm_evaluation:stepping"},
)
