"""What a run is: its recipe, its environments and data, its tasks, its directory, its trainer.

From the ground up; a module imports those above it in this list, never those below:

generation_config  the end tokens that a model's generation settings name
cache              where what is computed once is kept
install            the lines that install a trainer
checkout           whether gem-core runs from a checkout
memory_layout      how a trainer holds a model on its GPUs
program            a trainer that is a program of its own
provenance         the commit that results come from
redaction          takes secrets out of what is written
trainers           the registry of trainers
recipe/            the tables of a recipe, its checks, and how it is read
hardware           versions and hardware, for the record
splits             which part of the data training and evaluation play
directory/         the files of a run
environments/      environments made from the run's data, in processes and behind servers
resolved           what a run is, worked out once
launch             the start of a trainer
tracking/          progress and experiment trackers
tasks              the episodes of a run, and the machine of each
task_overlap       evaluation tasks that are trained on, too
"""
