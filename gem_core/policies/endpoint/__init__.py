"""Models behind an HTTP endpoint in OpenAI's format."""
