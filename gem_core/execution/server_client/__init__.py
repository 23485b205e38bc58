"""Clients of environment servers and of OpenEnv servers; see docs/server.md.

`client` is an environment that a server holds, over a socket that waits (`socket_client`);
`session_pool` has the sessions of a run, many at once, over those that do not (`async_client`).
"""
