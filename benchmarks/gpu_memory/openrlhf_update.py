"""OpenRLHF's update: its actor, its training step, its strategy and DeepSpeed's ZeRO engine.

They are those of the adapter's actor. Not OpenRLHF's: the model has no data; flash-attn's kernel
for the cross-entropy is replaced by a function that keeps and makes what that kernel does, and its
attention by torch's; DeepSpeed's fused Adam by torch's, which makes no tensor in a step either. The
entropy is compiled on a GPU; here its operations run one by one.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from cases import Case, attend_without_mask, join_group, model_folder, result, tensors_without_data
from live import LiveBytes
from logits import kernel_logprobs
from transformers import AutoConfig, AutoModelForCausalLM
from zero import fuse_adam, label_states, without_data

from gem_openrlhf.config import flags, render
from gem_openrlhf.cpu import harness

harness.apply()  # before the imports below: they need flash_attn and vllm

import ray  # noqa: E402
from openrlhf.models import actor as actors  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402
from openrlhf.utils import get_strategy  # noqa: E402

from gem_openrlhf.cpu.parse import parse  # noqa: E402
from gem_openrlhf.updates import GemPolicyModelActor  # noqa: E402


def measure(case: Case) -> dict[str, Any]:
    """Return the peak of the second update, of two forward passes each."""
    recipe = case.recipe()
    harness.choose_dtype(recipe)
    folder = model_folder(case.model)
    native = flags(recipe) | {
        "actor.model_name_or_path": str(folder),
        "train.agent_func_path": "unused.py",
        "train.batch_size": 2 * case.world,  # two passes an update; the others are alike
    }
    strategy = get_strategy(parse(render(native)))
    strategy.args.ds.attn_implementation = "sdpa"
    # Its sleep moves the states to the CPU while the engine samples; an update has them on the GPU.
    strategy.args.ds.enable_sleep = False
    join_group(case.world)
    attend_without_mask()
    strategy.setup_distributed()  # outside of the mode: the ranks of a mesh are read
    strategy.setup_distributed = lambda: None
    _install_kernel()
    with tensors_without_data(), LiveBytes() as live:
        trainer = _trainer(case, strategy, str(folder))
        engine = trainer.actor.model
        fuse_adam(engine)
        live.label("weights", engine.module.parameters())
        _update(trainer, case.tokens)
        label_states(engine, live)
        live.reset()
        _update(trainer, case.tokens)
        return result(live)


def _trainer(case: Case, strategy: Any, folder: str) -> Any:
    """Return the trainer that OpenRLHF's policy actor makes."""

    def model(path: str, **keywords: Any) -> Any:
        return without_data(
            AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(path),
                dtype=keywords["torch_dtype"],
                attn_implementation=keywords["attn_implementation"],
            )
        )

    with (
        patch.object(ray._private.services, "get_node_ip_address", lambda: "127.0.0.1"),
        patch.object(actors.AutoModelForCausalLM, "from_pretrained", model),
    ):
        actor = GemPolicyModelActor(case.world, 0, "127.0.0.1", "1")
        actor.init_model_from_pretrained(strategy, folder, 1)
    # Metrics are numbers.
    actor.recorder.means = SimpleNamespace(add=lambda **_: None, end_update=lambda: None)
    return actor.trainer


def _install_kernel() -> None:
    """Let OpenRLHF find flash-attn's cross-entropy, which the adapter asks for on a GPU."""
    for name in ("flash_attn.ops", "flash_attn.ops.triton", "flash_attn.ops.triton.cross_entropy"):
        sys.modules[name] = ModuleType(name)
    sys.modules[name].cross_entropy_loss = _cross_entropy  # type: ignore[attr-defined]


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, None]:
    return -kernel_logprobs(logits, labels, False), None


def _update(trainer: Any, tokens: int) -> None:
    """Make one optimizer step."""
    for number in range(trainer.strategy.accumulated_gradient):
        trainer.training_step(_row(tokens), trainer.args.algo.kl.init_coef, number)


def _row(tokens: int) -> Experience:
    """What OpenRLHF's loss gets of one row."""
    actions = {name: torch.zeros(1, tokens - 1) for name in ("action_log_probs", "advantages")}
    return Experience(
        sequences=torch.zeros(1, tokens, dtype=torch.long),
        attention_mask=torch.ones(1, tokens, dtype=torch.long),
        action_mask=torch.ones(1, tokens - 1, dtype=torch.long),
        **actions,
    )
