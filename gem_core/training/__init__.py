"""The whole run (`experiment`) and what it needs: the tiny model, the checks before it, its end."""
