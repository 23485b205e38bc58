"""Runs of several trainers compared step by step and token by token.

The CPU engine draws with noise that is keyed by the task, so that equal weights draw equal tokens
in every trainer. Runs of one recipe therefore coincide until rounding makes two trainers draw
different tokens; what makes them part earlier is a difference between the trainers.

* `recipe`: the overrides under which runs can be compared so;
* `traces`: a run's whole batches, read from its files;
* `divergence`: the first token at which two runs differ, with both sides;
* `differences`: what differs by more than rounding while the tokens are still equal;
* `weights`: the largest difference of the trained weights;
* `summary`: all of that as one JSON file, from which `page` and `plots` make the report.
"""
