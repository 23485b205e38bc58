"""The parts of a training run: recipe, tasks, run directory, trainers."""
