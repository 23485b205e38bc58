"""Serves environments to other programs: over WebSockets, and by the Model Context Protocol."""
