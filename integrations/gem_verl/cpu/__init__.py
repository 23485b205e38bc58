"""The CPU backend: stand-ins that let verl's own trainer run where there is no GPU.

Only for recipes with ``hardware.device = "cpu"``; it refuses to load where CUDA is available.
"""
