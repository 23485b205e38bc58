"""The replays of the five trainers, one module each; `gem_parity.replays` says what it has.

They reach into what their trainers' releases do not promise, and serve tests and benchmarks: they
are not in the wheel.
"""
