"""The contents of the built-in samples; ``scripts/make_samples.py`` writes them."""
