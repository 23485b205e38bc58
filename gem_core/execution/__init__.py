"""Where things run: the sandbox, worker processes, vector environments, the environment server."""
