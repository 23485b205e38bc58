"""The first call of each vector function of MKL in a process, by one thread.

MKL chooses the code of a function (cosine, exponential, ...) at its first call. Where several
threads make that call together, one of them may run code of low accuracy, once: errors of 1e-4 in
the cosines of a model's first forward pass, measured in one process of 60 on a busy machine. It is
reported in https://github.com/pytorch/pytorch/issues/188792.
"""

from __future__ import annotations

import torch

_FUNCTIONS = (
    *("acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "exp2"),
    *("expm1", "floor", "lgamma", "log", "log10", "log1p", "log2", "round", "rsqrt", "sigmoid"),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)


def make_first_calls() -> None:
    """Call each function for one number, which one thread does; a few microseconds each.

    Call it before a model runs on a CPU with several threads.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype) / 2
        for name in _FUNCTIONS:
            getattr(torch, name)(one)
