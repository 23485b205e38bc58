"""Measure that trainers agree: frozen episodes, their replay in a trainer, a reference in PyTorch.

Tests, benchmarks and `gem_conform` measure with it. `replays` says what a trainer's replay module
has; those of the five trainers are in the repository only (`benchmarks/parity/src/gem_replays`).
"""
