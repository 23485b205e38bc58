"""The CPU backend, for tests and the tiny profile only; it refuses to start where a GPU is."""
