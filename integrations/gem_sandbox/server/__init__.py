"""What runs in the server process: standard library only, nothing of gem_core.

The server is started as ``python -I -S`` with the folder above on its path, so these modules import
each other by relative imports. The processes that run programs are forks of it: what is imported
here is what a program can reach without importing anything.
"""
