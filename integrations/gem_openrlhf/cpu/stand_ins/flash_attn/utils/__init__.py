"""Names of flash-attn that OpenRLHF imports for ring attention."""
