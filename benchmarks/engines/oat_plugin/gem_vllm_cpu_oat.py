"""A plugin for vLLM 0.8, the one that Oat takes, for tests: it runs without its compiled operators.

The CPU build of vLLM 0.8.5 has operators for torch 2.6 and a newer C++ library than many systems
have. Here vLLM computes in plain torch: by its own switch where it has one, and attention by
`operators`, where vLLM looks for Intel's extension. Scheduler, block manager, prefix cache, sampler
and weight loading are vLLM's own. It refuses to load where there is a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

_libraries: list[Any] = []


def compute_in_torch() -> None:
    """Have every layer take its plain torch method; ``custom_ops=["none"]`` would do the same."""
    from vllm.model_executor.custom_op import CustomOp

    CustomOp.default_on = staticmethod(lambda: False)
    # A layer looks its operator up when it is built, and does not use it.
    library = torch.library.Library("_C", "DEF")
    for operator in ("silu_and_mul", "gelu_tanh_and_mul"):
        library.define(f"{operator}(Tensor(a!) out, Tensor input) -> ()")
    _libraries.append(library)


def add_attention() -> None:
    """Let vLLM find `operators`; it looks for them after its plugins are loaded."""
    sys.path.insert(0, str(Path(__file__).parent / "operators"))


def register_models() -> None:
    """Register the classes of the tiny model and of Gemma 3.

    By default vLLM looks at a model in another process, which fails where triton is missing.
    """
    from vllm import ModelRegistry
    from vllm.model_executor.models.gemma3 import Gemma3ForCausalLM
    from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

    for model in (Qwen3ForCausalLM, Gemma3ForCausalLM):
        ModelRegistry.register_model(model.__name__, model)


def register() -> None:
    """Change this process; the entry point."""
    if torch.cuda.is_available():
        raise RuntimeError("gem_vllm_cpu_oat changes a CPU build of vLLM; here is a GPU.")
    if not _libraries:
        compute_in_torch()
        add_attention()
        register_models()
