"""What a recipe needs on given GPUs, computed before anything is started."""
