"""What RL2's adapter itself makes of a recipe, beside the native configuration."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gem_rl2._compat import prune_checkpoints
from gem_rl2.launch import program, torchrun
from gem_rl2.updates import Updates


def built(recipe, model_dir):
    """The command that is started, and the weights of the correction."""
    return {
        "command": torchrun(recipe),
        "program": program(recipe)[0],
        "weights": weights(recipe),
        "kept": kept(recipe.train.keep_checkpoints),
    }


def weights(recipe):
    """The advantages of two tokens after the correction; None without one."""
    updates = Updates(recipe.algorithm.clip_low)
    updates.algorithm = recipe.algorithm
    if not updates.corrects:
        return None
    tensors = {
        "old_logps": torch.tensor([[1.0, 3.0]]),
        "llm_logps": torch.zeros(1, 2),
        "action_mask": torch.ones(1, 2, dtype=torch.long),
        "advantages": torch.ones(1, 2),
    }
    return updates.correct(tensors)["advantages"].tolist()


def kept(number):
    """Which of six checkpoints are kept."""
    with TemporaryDirectory() as folder:
        for step in range(1, 7):
            path = Path(folder, f"step{step}")
            path.mkdir()
            (path / ".metadata").touch()
        prune_checkpoints(Path(folder), number)
        return sorted(path.name for path in Path(folder).iterdir())
