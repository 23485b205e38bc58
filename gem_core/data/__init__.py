"""Data that ships with the package: word lists, crossword clues, a sample of articles."""
