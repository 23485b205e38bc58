"""Before a run: what it needs on given GPUs, whether it could start, what would be started."""
