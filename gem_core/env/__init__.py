"""The environment interface: `Env`, `EnvSpec`, registration, parsing, the checker."""
