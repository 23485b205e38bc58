"""The contents of the built-in samples; ``tools/make_samples.py`` writes them."""
