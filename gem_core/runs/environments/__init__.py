"""The environments of a run: their data, their tools, where they live."""
