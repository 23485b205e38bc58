"""The adapter's learner and actor in Oat's own program of processes, on a CPU.

Importing this installs the CPU backend. A process of launchpad's first imports the class of its
node, so the backend is there before anything of Oat is.
"""

from __future__ import annotations

import os

import torch

from gem_adapters.cpu_threads import VARIABLE
from gem_oat.cpu.shims import install

install()
torch.set_num_threads(int(os.environ.get(VARIABLE, "1")))

from gem_oat.learner import GemLearner  # noqa: E402
from gem_oat.rollout import GemActor  # noqa: E402


class CpuLearner(GemLearner):
    """The adapter's learner."""


class CpuActor(GemActor):
    """The adapter's actor."""
