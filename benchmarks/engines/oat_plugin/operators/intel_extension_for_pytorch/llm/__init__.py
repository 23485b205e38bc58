"""Stands in for a package of Intel's extension; see `modules`."""
