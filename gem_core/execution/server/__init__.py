"""The environment server, and clients of it and of OpenEnv servers; see docs/server.md."""
