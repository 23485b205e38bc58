"""Names of vLLM that OpenRLHF imports for the weight sync."""
