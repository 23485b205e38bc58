"""Measure that trainers agree: frozen episodes, their replay in an adapter, a reference.

An adapter's ``cpu/replay.py`` has

* ``replay(recipe, episodes, model_dir) -> Replay``: the frozen episodes go through the adapter's
  conversion and through the advantages, the loss and the backward pass of the trainer's package;
* ``replay_run(recipe, batches, model_dir, on_step)``: a whole recorded run goes through the
  trainer's own loop, optimizer and weight export; see `gem_core.parity.teacher_forced`;
* ``TRAITS``: what the trainer's code does in its own way, see `gem_core.parity.traits`.
"""
