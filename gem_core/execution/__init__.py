"""Where things run: sandboxes, worker processes, vector environments, environments of a server."""
