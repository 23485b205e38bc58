"""Measuring that trainers agree: frozen episodes, what an adapter made of them, a reference.

An adapter's ``cpu/replay.py`` has ``replay(recipe, episodes, model_dir) -> Replay``: the frozen
episodes go through its real conversion, the real package's advantage path, loss and backward pass.
"""
