"""gem-core on TRL's GRPOTrainer; importing this module imports nothing of TRL."""

from __future__ import annotations

from gem_core.runs.install import install_line
from gem_core.runs.memory_layout import EngineMemory, MemoryLayout
from gem_core.runs.trainers import Trainer

TRAINER = Trainer(
    name="trl",
    distribution="trl",
    tested=("1.16", "2"),
    python=((3, 11), (3, 15)),
    install=install_line("trl"),
    launch="gem_trl.launch:run",
    translate="gem_trl.config:translate",
    check_nodes="gem_trl.nodes:require_meeting_place",
    command="gem_trl.nodes:command",
    # Its fused head (``add_fused_lm_head``) never makes all logits at once; its default optimizer
    # is fused (``adamw_torch_fused``).
    # Over the drawn tokens all are there: it is the model's own forward pass.
    # The gradients are views of DDP's buckets (``GemTrainer._build_accelerator_args``).
    memory=MemoryLayout(
        4,
        4,
        8,
        "none",
        0,
        "minibatch",
        autocast=True,
        step=0,
        bytes_with_support=25,
        engine=EngineMemory(
            0.3,
            "vllm_gpu_memory_utilization",
            "vllm_enable_sleep_mode",
            elsewhere=("vllm_mode", "server"),
        ),
    ),
    shared_imports=("gem_core.cli", "gem_core.evaluation.local", "gem_trl.launch"),
    eval_engines={"vllm": "gem_adapters.vllm_evaluation:stepping"},
)
