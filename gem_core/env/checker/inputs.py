"""The inputs that the checks give to an environment: unusual actions, wrong types, seeds."""

from __future__ import annotations

from collections.abc import Callable

MALFORMED = (
    "",
    " ",
    "\n",
    "\x00",
    "\\boxed{}",
    "\\boxed{ }",
    "\\boxed{",
    "\\boxed{\\boxed{",
    "\\boxed{\\boxed{1}}",
    "\\boxed{{{{1}}}}",
    "}}}}{{{{",
    "\\boxed{\x00}",
    "\\boxed{-1}",
    "\\boxed{0}",
    "\\boxed{1.5}",
    "\\boxed{1e9}",
    "\\boxed{nan}",
    "\\boxed{٣}",
    "\\boxed{²}",
    "\\boxed{\uff11 \uff11 \uff11}",
    "\\boxed{\ud800}",
    "\\boxed{🎲 🎲}",
    "\\boxed{999999999999999999999999999999}",
    "\\boxed{" + "9" * 5000 + "}",
    "\\boxed{" + "1 " * 5000 + "}",
    "\\boxed{A B C D E F G}",
    "\\boxed{%s %d {} {0}}",
    "\\boxed{__import__('os')}",
    "\\boxed{up}\\boxed{",
    "<answer></answer>",
    "<answer>" * 2000,
    "</answer><answer>",
    "\\boxed{" * 5000,
    "\\boxed{" * 5000 + "}" * 5000,
    "{" * 50000 + "}" * 50000,
    "x" * 100_000,
    "\\boxed{" + "x" * 100_000 + "}",
    "é😀\u202e\u0301" * 25_000,
    "\\boxed{" + "\n" * 100_000 + "}",
    "<answer>" + "y" * 100_000 + "</answer>",
)
"""Actions that an agent may produce and that must neither raise nor hang."""
WRONG_TYPES = (None, 1, 1.5, b"\\boxed{1}", ["\\boxed{1}"], {"action": "1"})
"""Actions that are not text."""
BAD_SEEDS = ("1", 1.5, [1])
"""Seeds that ``reset`` must refuse."""
GOOD_SEEDS = (0, -1, 2**32, -(2**70), True)
"""Seeds that ``reset`` must accept."""
OTHER_SIGN = "the same with the other sign"
FAR_SEEDS: dict[str, Callable[[int], int]] = {
    OTHER_SIGN: lambda seed: -seed,
    "that plus 2**32": lambda seed: seed + 2**32,
    "that plus 2**64": lambda seed: seed + 2**64,
}
"""What a generator that keeps only a part of a seed takes for the same seed."""
