"""LoRA: OpenRLHF sends its engine the adapters under PEFT's names, which vLLM does not load, and
exports the adapters only; `gem_adapters.lora` merges them."""

from __future__ import annotations

import os
from typing import Any

from openrlhf.utils.distributed_util import torch_dist_barrier_and_cuda_sync

from gem_adapters.lora import merged, save_merged_model

__all__ = ["merged", "save_merged"]


def save_merged(strategy: Any, model: Any, tokenizer: Any, folder: str) -> None:
    """Write the merged model in Hugging Face's format, as ``DeepspeedStrategy.save_model`` does.

    Args:
        strategy: OpenRLHF's, of this process.
        model: OpenRLHF's policy with adapters.
        tokenizer: is written beside it.
        folder: where to.
    """
    if strategy.is_rank_0():
        os.makedirs(folder, exist_ok=True)
        save_merged_model(strategy._unwrap_model(model), tokenizer, folder)
    torch_dist_barrier_and_cuda_sync()
