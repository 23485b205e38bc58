"""OpenRLHF adapter: gem-core recipes on the released ``openrlhf.cli.train_ppo_ray``."""

from __future__ import annotations

from gem_core.training.memory_layout import MemoryLayout
from gem_core.training.trainers import Trainer

TRAINER = Trainer(
    name="openrlhf",
    distribution="openrlhf",
    tested=("0.11.2", "0.12"),
    python=((3, 10), (3, 13)),
    # flash-attn imports torch while it builds, so torch and flash-attn come first.
    install=(
        "pip install torch && pip install flash-attn==2.8.3 --no-build-isolation && "
        "pip install 'gem-core[openrlhf]' 'openrlhf[vllm]==0.11.2'"
    ),
    launch="gem_openrlhf.launch:run",
    translate="gem_openrlhf.config:translate",
    # flash_attn and vllm are asked for only where a GPU is (see _compat.require_gpu_packages).
    modules={"ray": "pip install 'ray[default]'", "deepspeed": "pip install deepspeed"},
    # ``ds.zero_stage`` 2; ``models/actor.py`` makes logits float32.
    memory=MemoryLayout(2, 2, 12, "optimizer", 10, "minibatch", packed=True),
)
