"""What came out: reports of runs, comparisons, the viewer."""
