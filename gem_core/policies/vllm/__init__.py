"""vLLM's engine as a policy."""
