"""Environments that live elsewhere, as the kernel sees them: calls, outcomes and typed errors."""
