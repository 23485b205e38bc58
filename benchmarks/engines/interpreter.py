"""Triton's kernels on a CPU: import this before anything that imports Triton or vLLM.

Triton's interpreter (``TRITON_INTERPRET=1``) computes a kernel with numpy, program by program. A
GPU is not needed; speed, rounding of fused operations and races between programs are not shown.

Three things stand in the way of vLLM's kernels, and are put right here:

* A build of vLLM for CPUs leaves Triton alone where Triton has no backend for CPUs. The
  interpreter needs none, so a name is put in its place.
* The interpreter gives a loop's index as an ``int``, which has no method ``to``.
* It has no functions of CUDA's libdevice; vLLM's sampler uses ``log1p``.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import triton.language as tl
from triton.backends import backends
from triton.runtime import interpreter

_patch_language: Callable[..., None] = interpreter._patch_lang_core


class Index(int):
    """An index of a loop, of any width."""

    def to(self, dtype: Any) -> Index:
        """Return the index: an ``int`` has all the bits that a kernel asks for."""
        return self


def _patch_with_indices(language: Any, scope: Any) -> None:
    _patch_language(language, scope)
    plain = language.range
    scope.set_attr(language, "range", lambda *ends, **step: map(Index, plain(*ends, **step)))


def log1p(value: Any) -> Any:
    """Return log(1 + value) of a tensor inside a kernel; libdevice's function."""
    handle = value.handle
    result = interpreter.TensorHandle(numpy.log1p(handle.data), handle.dtype.scalar)
    return tl.core.tensor(result, value.type)


def prepare_vllm() -> None:
    """Have vLLM's sampler compute its noise without libdevice.

    Raises:
        AssertionError: vLLM does not take Triton's kernels, so that nothing would be shown.
    """
    import vllm.triton_utils
    from vllm.v1.worker.gpu.sample import gumbel

    assert vllm.triton_utils.HAS_TRITON, "vLLM leaves Triton alone"
    gumbel.tldevice = SimpleNamespace(log1p=log1p)


def _register_backend() -> None:
    assert "cpu" not in backends, "Triton has a backend for CPUs: run the kernels with it"
    driver = SimpleNamespace(is_active=lambda: True)
    backends["cpu"] = SimpleNamespace(driver=driver, compiler=None)


_register_backend()
interpreter._patch_lang_core = _patch_with_indices
