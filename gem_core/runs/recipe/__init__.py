"""The recipe: its tables, its files, its checks."""
