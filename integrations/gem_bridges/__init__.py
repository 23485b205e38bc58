"""Environments of gem-core for programs that expect those of other packages; see docs/bridges.md.

`as_gymnasium`, `as_inspect` and `as_verifiers` import the other package; nothing here does.
"""
