"""A trainer for gem-core in plain PyTorch; importing this module imports no torch."""

from __future__ import annotations

from gem_core.runs.trainers import Trainer

TRAINER = Trainer(
    name="plain",
    distribution="torch",
    tested=("2.6", "3"),
    python=((3, 10), (3, 15)),
    install="pip install torch transformers",
    launch="gem_plain.launch:run",
    translate="gem_plain.config:translate",
)
