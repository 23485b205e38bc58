"""Many environments behind one `reset` and one `step`, for own training loops; docs/workers.md."""

from gem_core.execution.vector.env import Ready, Steps, VectorEnv
from gem_core.execution.vector.make import make_vec

__all__ = ["Ready", "Steps", "VectorEnv", "make_vec"]
