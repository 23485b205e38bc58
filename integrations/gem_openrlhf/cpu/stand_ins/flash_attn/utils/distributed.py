"""Names that OpenRLHF imports for ring attention."""

from flash_attn import unavailable

__all__ = ["all_gather"]

all_gather = unavailable
