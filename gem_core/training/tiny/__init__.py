"""The tiny model: a two-layer policy that reads GEM's prompts on a CPU.

It shows, in minutes and without downloads, that a whole training path learns. It is built on first
use (tokenizer, random weights, a short warm start by behaviour cloning) and kept in a cache, so
that every trainer starts from the same files. torch and transformers are imported only when a
model has to be built.
"""

from __future__ import annotations

from gem_core.training.tiny.cache import model_path, model_source

__all__ = ["model_path", "model_source"]
