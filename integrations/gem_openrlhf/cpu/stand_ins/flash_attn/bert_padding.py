"""Names that OpenRLHF imports for packed sequences."""

from einops import rearrange

from flash_attn import unavailable

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]

index_first_axis = unavailable
pad_input = unavailable
unpad_input = unavailable
