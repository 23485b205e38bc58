"""Episodes: their data, the machine that plays one, the loops around it, metrics."""
