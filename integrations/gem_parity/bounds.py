"""The bounds within which two trainers count as equal. This module does not import torch."""

BOUNDS = {
    "advantage": 1e-6,
    "loss": 1e-3,
    "cosine": 0.9999,
    "norm": 0.01,
}
"""Largest advantage error and relative loss error, lowest cosine, largest relative norm error."""

WEIGHTS = 1e-4
"""Largest relative L2 difference of all weights to the reference's, after every step of a run."""
