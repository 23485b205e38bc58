"""The file for ``rollout.env_path`` of RL2's newer API, which calls ``generate`` for each sample.

It needs the run's directory in ``GEM_RL2_RUN``. 0.0.2 does not use it.
"""

from __future__ import annotations

from gem_rl2.generate import generate

__all__ = ["generate"]
