"""TRL's update: its own loss, training step, DDP and optimizer.

Not TRL's: the model has no data, and the row is made here. What DDP does with data is left out: it
checks and sends the weights at its start, and sums gradients (its buckets are there). The tiles of
the output head are folded in place, as Triton's kernels do; TRL's operations for a CPU make copies.
Attention gets no mask, as in a row without padding.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.nn.parallel.distributed as ddp
from cases import Case, attend_without_mask, join_group, model_folder, result, tensors_without_data
from live import LiveBytes
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl.kernels import chunked_logprob

from gem_core.runs.tasks import MachineFactory
from gem_trl.config import native_config, translate
from gem_trl.rollout import episode_return, rollout, task_rows
from gem_trl.trainer import GemTrainer

PROMPT = 64
"""Tokens of the row that are its prompt."""


def measure(case: Case) -> dict[str, Any]:
    """Return the peak of the second update."""
    join_group(case.world)
    attend_without_mask()
    ddp._verify_param_shape_across_processes = lambda *arguments: None  # type: ignore[assignment]
    ddp._sync_module_states = lambda *arguments, **keywords: None
    chunked_logprob._forward_tile = lambda *arguments, **keywords: None
    chunked_logprob._backward_tile = lambda *arguments, **keywords: None
    chunked_logprob._addmm_fp32 = lambda *arguments: None
    folder = model_folder(case.model)
    with tensors_without_data() as mode:
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=torch.float32
        )
    model.to = lambda *arguments, **keywords: model  # it is where it should be
    trainer = _trainer(case, model, AutoTokenizer.from_pretrained(folder))
    with mode, LiveBytes() as live:
        live.label("weights", model.parameters())
        wrapped, optimizer = _prepare(trainer)
        row = _row(case.tokens)
        _update(trainer, wrapped, optimizer, row, live)
        live.reset()
        _update(trainer, wrapped, optimizer, row, live)
        return result(live)


def _trainer(case: Case, model: Any, tokenizer: Any) -> GemTrainer:
    """Return the adapter's trainer, whose engine is transformers: the update is the same."""
    recipe = case.recipe()
    native = {**translate(recipe), "use_vllm": False, "use_cpu": True}
    trainer = GemTrainer(
        recipe,
        MachineFactory(recipe, tokenizer),
        model=model,
        args=native_config(recipe, [1], tempfile.mkdtemp(), native),
        train_dataset=task_rows(recipe),
        rollout_func=rollout,
        reward_funcs=episode_return,
        processing_class=tokenizer,
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer._prepare_inputs = lambda inputs: inputs  # no episodes are played
    trainer.updates.add = lambda *arguments: None  # metrics; needs numbers
    return trainer


def _prepare(trainer: GemTrainer) -> tuple[Any, Any]:
    """As transformers' training loop does before its first step."""
    if trainer.args.gradient_checkpointing:
        trainer.model.gradient_checkpointing_enable(trainer.args.gradient_checkpointing_kwargs)
    trainer.create_optimizer()
    wrapped, optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    wrapped.register_comm_hook(None, _reduced_in_place)
    wrapped.reducer = _Reducer(wrapped.reducer)
    wrapped.train()
    return wrapped, optimizer


class _Reducer:
    """DDP's reducer, which does not put its buckets into another order after the first update.

    It would send the order, which is data. The buckets would have the same sum.
    """

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def _rebuild_buckets(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)


def _reduced_in_place(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations
    """The sum over all processes takes the place of a bucket, as with DDP's own reduction."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _row(tokens: int) -> dict[str, torch.Tensor]:
    """What TRL's loss gets of one row."""
    kept = tokens - PROMPT
    return {
        "prompt_ids": torch.zeros(1, PROMPT, dtype=torch.long),
        "prompt_mask": torch.ones(1, PROMPT, dtype=torch.long),
        "completion_ids": torch.zeros(1, kept, dtype=torch.long),
        "completion_mask": torch.ones(1, kept, dtype=torch.long),
        "tool_mask": torch.ones(1, kept, dtype=torch.long),
        "advantages": torch.zeros(1, kept),
        "old_per_token_logps": torch.zeros(1, kept),
        "num_items_in_batch": torch.tensor(1.0),
    }


def _update(trainer: GemTrainer, wrapped: Any, optimizer: Any, row: Any, live: LiveBytes) -> None:
    trainer.training_step(wrapped, row, None)
    gradients = [weight.grad for weight in wrapped.parameters() if weight.grad is not None]
    live.label("gradients", gradients)
    trainer.accelerator.clip_grad_norm_(wrapped.parameters(), trainer.args.max_grad_norm)
    optimizer.step()
    states = [state for states in optimizer.state.values() for state in states.values()]
    live.label("optimizer", states)
    optimizer.zero_grad()
