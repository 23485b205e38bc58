"""``gem-core submit``: a grid of training runs as jobs of Slurm, by submitit.

resources  what a job asks of the cluster: the options as parameters of submitit
cells      the grid: each cell is one ``gem-core train``, with a folder of its own
job        what submitit runs on the node: starts the training, hands signals on, says why it failed
states     what became of each cell, from its files and the cluster
launch     gives the cells to submitit, and waits for them
"""
