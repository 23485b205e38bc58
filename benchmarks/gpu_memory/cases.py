"""One measured update: which trainer, model, number of GPUs; and what all trainers need for it."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from live import LiveBytes
from torch._subclasses import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path
from gem_preflight.shapes import QWEN3

BASELINE = "guess-the-number-easy"


@dataclass(frozen=True)
class Case:
    """An update at the profile ``paper``: one row of the longest length in a forward pass.

    Attributes:
        trainer: name of the trainer.
        model: a key of `gem_preflight.shapes.QWEN3`.
        world: number of GPUs.
        tokens: length of the row.
        overrides: further keys of the recipe.
    """

    trainer: str
    model: str
    world: int
    tokens: int
    overrides: tuple[str, ...] = ()

    def recipe(self) -> Recipe:
        """Return the recipe, which trains on GPUs."""
        keys = [f"model.path=Qwen/{self.model}", f"limits.max_context_tokens={self.tokens}"]
        nodes = max(1, self.world // 8)
        keys += [f"hardware.nodes={nodes}", f"hardware.gpus_per_node={self.world // nodes}"]
        keys += [f"batch.episodes={max(128, 4 * self.world)}", "hardware.engine=default"]
        return load_recipe(BASELINE, "paper", [*keys, *self.overrides])


def join_group(world: int) -> None:
    """Join a process group of ``world`` processes, of which this is the only one.

    Its collectives return at once and move nothing; no process waits for another.
    """
    own = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
    os.environ.update(own | {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"})
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)


def tensors_without_data() -> FakeTensorMode:
    """Return the mode in which tensors have no data; real ones may come in."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def attend_without_mask() -> None:
    """Give attention no mask of tokens x tokens: the row has no padding, but to see that is data.

    With data transformers makes none for torch's attention in such a row, nor for flash-attn.
    """
    from transformers.models.qwen3 import modeling_qwen3

    if hasattr(modeling_qwen3, "create_causal_mask"):
        modeling_qwen3.create_causal_mask = lambda **_: None
    else:  # transformers 4.51, which Oat pins
        modeling_qwen3.Qwen3Model._update_causal_mask = lambda *_, **__: None


def model_folder(name: str) -> Path:
    """Write the ``config.json`` of a Qwen3 and the tokenizer of the tiny model; return the folder.

    There are no weights in it.
    """
    shape = QWEN3[name]
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
    }
    folder = Path(tempfile.mkdtemp(prefix="gem-gpu-memory-"))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tiny = load_recipe(BASELINE, "tiny", ["model.tiny.warm_start_steps=0"])
    for path in Path(model_path(tiny)).glob("*token*"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def result(live: LiveBytes) -> dict[str, Any]:
    """Return what was found, in bytes: the peak, and what it is made of."""
    return {"peak": live.peak, "kinds": live.kinds, "torch": torch.__version__}
