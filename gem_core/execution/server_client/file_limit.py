"""How many connections a process may have: each is a file to the system."""

from __future__ import annotations


def raise_file_limit(connections: int) -> None:
    """Allow this process a file per connection, as far as the system lets it."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
