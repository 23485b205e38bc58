"""What the adapters of several trainers share; each module has one job."""
