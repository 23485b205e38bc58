"""Measure that trainers agree: frozen episodes, their replay in an adapter, a reference.

An adapter's ``cpu/replay.py`` has ``replay(recipe, episodes, model_dir) -> Replay``, which passes
the frozen episodes through the adapter's conversion and through the advantages, the loss and the
backward pass of the trainer's package.
"""
