"""``gem-core export``: the sampled episodes of runs as one Parquet file.

episode    what is exported: an episode and where it is from
table      the columns, and an episode as a row
parquet    the file, written and read
command    the command
"""
