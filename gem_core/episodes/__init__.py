"""Episodes: their data, the machine that plays one, policies, metrics."""
