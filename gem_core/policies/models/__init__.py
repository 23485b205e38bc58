"""Model files: where they come from, whether they are complete."""
