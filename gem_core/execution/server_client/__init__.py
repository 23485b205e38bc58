"""Clients of environment servers and of OpenEnv servers; see docs/server.md."""
