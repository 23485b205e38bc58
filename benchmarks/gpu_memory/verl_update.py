"""verl's update: its FSDP2 engine, its losses, its clipping and its optimizer.

Not verl's: the model has no data, and its shards are made in place of being sent; the rows are one
plain row, not nested tensors of the same tokens; for the logarithm of a token's probability
flash-attn's kernel is replaced by a function that keeps and makes what that kernel does. The
entropy is compiled on a GPU; here its operations run one by one.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

os.environ.update({"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda"})

import torch
from cases import Case, join_group, model_folder, result, tensors_without_data
from live import LiveBytes
from logits import kernel_logprobs
from transformers import AutoConfig, AutoModelForCausalLM
from verl.plugin.platform import set_platform

from gem_verl.config import payload, translate
from gem_verl.cpu.platform import CPUPlatform
from gem_verl.native import compose_native

set_platform(CPUPlatform())

from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_vanilla  # noqa: E402
from verl.utils import torch_functional  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.workers.engine.fsdp import transformer_impl  # noqa: E402


def measure(case: Case) -> dict[str, Any]:
    """Return the peak of the second update, whose gradients are added to those of the first."""
    join_group(case.world)
    recipe = case.recipe()
    folder = model_folder(case.model)
    settings = [*translate(recipe), f"actor_rollout_ref.model.path='{folder}'"]
    config = compose_native([*settings, f"+data.gem_recipe={payload(recipe)!r}"])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    checkpointing = config.actor_rollout_ref.model.enable_gradient_checkpointing
    engine = _engine(actor)
    with tensors_without_data(), LiveBytes() as live:
        _build(engine, folder, checkpointing)
        live.label("weights", _local(engine.module.parameters()))
        engine.module.train()
        _update(engine, actor, case.tokens, live)
        live.reset()
        _update(engine, actor, case.tokens, live)
        return result(live)


def _engine(actor: Any) -> Any:
    """Return verl's engine without a model."""
    kind = transformer_impl.FSDPEngineWithLMHead
    engine = kind.__new__(kind)
    engine.engine_config = actor.fsdp_config
    engine.optimizer_config = actor.optim
    engine.model_config = SimpleNamespace(lora_rank=0, enable_activation_offload=False)
    engine._qat_enabled = False
    engine._init_device_mesh()
    return engine


def _build(engine: Any, folder: Any, checkpointing: bool) -> None:
    """Make the model, its shards and the optimizer."""
    module = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), dtype=torch.float32, attn_implementation="sdpa"
    )
    if checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    transformer_impl.fsdp2_load_full_state_dict = lambda *arguments: None
    engine.module = engine._build_fsdp_module(module)
    engine.optimizer = engine._build_optimizer(engine.module)
    for group in engine.optimizer.param_groups:
        group["foreach"] = True  # what torch takes on a GPU


def _update(engine: Any, actor: Any, tokens: int, live: LiveBytes) -> None:
    _loss(engine, actor, tokens).backward()
    weights = list(engine.module.parameters())
    live.label("gradients", _local(weight.grad for weight in weights if weight.grad is not None))
    engine.optimizer_step()
    states = engine.optimizer.state.values()
    live.label("optimizer", _local(tensor for state in states for tensor in state.values()))


def _loss(engine: Any, actor: Any, tokens: int) -> torch.Tensor:
    """As `forward_step` and `ppo_loss`, on one row of the longest length."""
    ids = torch.zeros(1, tokens, dtype=torch.long)
    with torch.autocast("cpu", engine._autocast_dtype):
        output = engine.module(
            input_ids=ids, attention_mask=None, position_ids=ids.clone(), use_cache=False
        )
        logits = output.logits.squeeze(0)
        entropy = torch_functional.entropy_from_logits(logits)
        logprobs = kernel_logprobs(logits, ids[0], not actor.calculate_entropy)
        ones = torch.ones(1, tokens)
        loss, _ = compute_policy_loss_vanilla(
            torch.zeros(1, tokens), logprobs[None], ones, ones.bool(), "token-mean", actor
        )
        bonus = agg_loss(entropy[None], ones.bool(), "token-mean")
        loss = loss - actor.entropy_coeff * bonus
    return loss


def _local(tensors: Any) -> list[torch.Tensor]:
    """Return the shards of this process."""
    return [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
