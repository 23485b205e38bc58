"""Text games with GEM's ids. Import the class from its module, or use `gem_core.make`."""
