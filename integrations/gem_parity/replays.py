"""Find the replay module of a trainer: frozen episodes and recorded runs through its own update.

The module of a trainer has

* ``replay(recipe, episodes, model_dir) -> Replay``: the frozen episodes go through the adapter's
  conversion and through the advantages, the loss and the backward pass of the trainer's package;
* ``replay_run(recipe, batches, model_dir, on_step)``: a whole recorded run goes through the
  trainer's own loop, optimizer and weight export; see `gem_parity.teacher_forced`;
* ``TRAITS``: what the trainer's code does in its own way, see `gem_parity.traits`;
* ``MODES``, where the trainer has further modes of training that must train the same (asynchronous
  ones): name -> overrides of the recipe.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

GROUP = "gem_parity.replays"
"""Entry points of other packages: name of the trainer -> its module."""
OWN = "gem_replays"
"""The replays of gem-core's own five trainers, which a checkout has, and a wheel has not."""


def load_replay(trainer: str) -> ModuleType:
    """Return the replay module of a trainer.

    Raises:
        ModuleNotFoundError: there is none under `GROUP`, nor in a checkout.
    """
    for point in entry_points(group=GROUP, name=trainer):
        return import_module(point.value)
    return import_module(f"{OWN}.{trainer}")
