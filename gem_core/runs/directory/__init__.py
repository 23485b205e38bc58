"""The directory of a run: its files, its lock, its episodes."""
