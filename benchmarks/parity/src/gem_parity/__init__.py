"""Measure that trainers agree: frozen episodes, their replay in an adapter, a reference.

It serves tests and benchmarks, and is not in the wheel. `gem_parity.trainers` says what a trainer's
replay module has.
"""
