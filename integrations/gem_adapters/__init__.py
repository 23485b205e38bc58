"""Code that the adapters of several trainers share."""
