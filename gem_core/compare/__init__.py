"""Running a grid of experiments, each cell in its trainer's own environment, and reading it back.

``grid`` says which cells there are, ``runner`` carries them out and survives being killed,
``results`` reads what they left; tables and plots come from those files alone.
"""
