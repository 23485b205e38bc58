"""What a run is: its recipe, its environments and tasks, its directory, its trainer."""
