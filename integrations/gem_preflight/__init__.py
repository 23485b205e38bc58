"""What a recipe needs on given GPUs, and whether a run could start here, before one is started."""
