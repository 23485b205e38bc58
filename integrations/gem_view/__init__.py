"""Runs in a browser: learning curves, episodes turn by turn, the same task in several trainers.

`gem-core view` serves a page on this machine alone. It reads run directories and writes nothing in
them; the index of their episodes is in the cache. docs/view.md describes it.
"""
