"""gem-core on RL2's PPO trainer; importing this module imports nothing of RL2."""

from __future__ import annotations

from gem_core.runs.install import install_line
from gem_core.runs.memory_layout import MemoryLayout
from gem_core.runs.trainers import Trainer

TRAINER = Trainer(
    name="rl2",
    distribution="rl-square",
    tested=("0.0.2", "0.0.3"),
    python=((3, 10), (3, 13)),
    install=install_line("rl2"),
    launch="gem_rl2.launch:run",
    translate="gem_rl2.config:translate",
    command="gem_rl2.launch:command",
    modules={
        "ring_flash_attn": "pip install --no-deps ring-flash-attn==0.1.8",
        "hydra": "pip install hydra-core",
        "aiohttp": "pip install aiohttp",
        "torchdata": "pip install torchdata",
        "wandb": "pip install wandb",
    },
    # ``utils/data_parallelism.py``; ``workers/actor.py`` makes logits float32.
    memory=MemoryLayout(4, 4, 8, "full", 20, "minibatch", packed=True),
    eval_engines={"sglang": "gem_adapters.sglang_evaluation:stepping"},
)
