"""What a training run is made of: the recipe, its tasks, its run directory, the trainers."""
