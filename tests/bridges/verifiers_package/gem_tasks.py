"""What a user of verifiers writes to play gem-core's environments."""

from gem_bridges.as_verifiers import GemCoreEnv, GemCoreTaskset

__all__ = ["GemCoreEnv", "GemCoreTaskset"]
