"""Environments of other packages as `gem_core.Env`; see docs/bridges.md.

Nothing here imports the other package before an environment of it is made.
"""
