"""Digests of the tensors of a model: what left a trainer is what an engine has, bit by bit."""

from __future__ import annotations

import hashlib


def hashes(weights):
    """A digest of each of ``(name, tensor)``."""
    return {
        name: hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in weights
    }
