"""Oat (oat-llm) as a trainer of gem-core; see README.md. Importing this imports nothing of Oat."""

from __future__ import annotations

from gem_core.runs.install import install_line
from gem_core.runs.memory_layout import EngineMemory, MemoryLayout
from gem_core.runs.trainers import Trainer

TRAINER = Trainer(
    name="oat",
    distribution="oat-llm",
    tested=("0.2.4", "0.3"),
    # Oat's own metadata end at 3.10, where its GPU stack does; its CPU backend runs on 3.11.
    python=((3, 10), (3, 12)),
    install=install_line("oat"),
    launch="gem_oat.launch:run",
    translate="gem_oat.config:translate",
    command="gem_oat.launch:command",
    # ``args.py``: ``zero_stage`` 2.
    memory=MemoryLayout(
        2,
        2,
        12,
        "optimizer",
        16,
        "minibatch",
        packed=True,
        fused_key="use_fused_lm_head",
        # `FusedLinear` of ``utils/lm_head.py``: its backward pass makes five float32 tensors.
        head_chunk=(512, 20),
        reduce_bucket=2 * 500_000_000,  # DeepSpeed's default ``reduce_bucket_size``, in bfloat16
        whole_gradients=True,
        engine=EngineMemory(0.45, "vllm_gpu_ratio", "vllm_sleep"),
    ),
    eval_engines={"vllm": "gem_adapters.vllm_evaluation:stepping"},
)
