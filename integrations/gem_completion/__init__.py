"""``gem-core completion``: a script that completes gem-core's commands in bash, zsh or fish.

names      what is completed: environments, baselines, trainers, keys of recipes ...
script     the script, by shtab, with functions that have these names
command    the command
"""
