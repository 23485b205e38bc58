"""Run a grid of experiments, each cell in its trainer's own environment, and read the results.

`grid` defines the cells, `runner` runs them and can be killed and restarted, `prepared` pays for a
trainer's imports once, `results` reads the cells' files. Tables and plots are made only from those
files.
"""
