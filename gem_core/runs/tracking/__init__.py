"""Experiment trackers: what a run records, sent to TensorBoard, Weights & Biases, MLflow, Trackio.

``metrics.jsonl`` and ``evals.jsonl`` of the run directory are always written, by every trainer and
with the same names. `tracked` follows these files while a run trains and sends each new line, so a
tracker sees the same names whatever the trainer, and no trainer's process talks to it. `send` does
the same with a run that is over.
"""

from gem_core.runs.tracking.follow import send, tracked
from gem_core.runs.tracking.trackers import TRACKERS, Tracker, open_tracker, require_trackers

__all__ = ["TRACKERS", "Tracker", "open_tracker", "require_trackers", "send", "tracked"]
