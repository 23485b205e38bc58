"""Data of the package: word lists, crossword clues, a sample of articles."""
