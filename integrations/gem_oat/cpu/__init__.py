"""The CPU backend: Oat's real learner and actor without a GPU, vLLM and launchpad.

It stands in for two modules (`vllm`, `launchpad`), and for the CUDA calls that Oat makes
unconditionally; all else is the released package. It refuses to work where a GPU is, and is used
only for recipes with ``hardware.device = "cpu"``.
"""

from __future__ import annotations

from gem_oat.cpu.shims import install

__all__ = ["install"]
