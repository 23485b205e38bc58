"""TorchRL as a trainer for gem-core; importing this module imports no TorchRL."""

from __future__ import annotations

from gem_core.runs.trainers import Trainer

TRAINER = Trainer(
    name="torchrl",
    distribution="torchrl",
    tested=("0.14", "0.15"),
    python=((3, 10), (3, 15)),
    install='pip install "torchrl>=0.14,<0.15" transformers',
    launch="torchrl_trainer.launch:run",
    translate="torchrl_trainer.config:translate",
    modules={"transformers": "pip install transformers"},
)
