"""The checks of ``[workers]`` that its types cannot express."""

from __future__ import annotations

from urllib.parse import urlsplit

from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.recipe.tables import WorkersConfig

_EXAMPLE = "http://127.0.0.1:8000"
_KINDS = ("http", "https", "ws", "wss")


def check_workers(recipe: Recipe) -> None:
    """Check that the keys of ``[workers]`` go with its backend.

    Raises:
        RecipeError: they do not; the message names the key.
    """
    workers = recipe.workers
    if workers.backend == "server":
        _check_server(recipe)
    elif not isinstance(workers.address, str | None):
        raise RecipeError(
            f'workers.address: several addresses go with workers.backend = "server", not '
            f"{workers.backend!r}; name one."
        )


def _check_server(recipe: Recipe) -> None:
    workers = recipe.workers
    if not workers.address:
        raise RecipeError(
            'workers.address: workers.backend = "server" needs the address of a server: start one '
            f'(gem-core serve) and set workers.address = "{_EXAMPLE}".'
        )
    for address in server_addresses(workers):
        _check_address(address)
    if workers.number is not None:
        raise RecipeError(
            "workers.number: a server has no worker processes of this run; leave it out (gem-core "
            "serve --sessions bounds how many environments a server plays)."
        )
    if workers.max_restarts != type(workers)().max_restarts:
        raise RecipeError(
            "workers.max_restarts: a run does not restart servers; leave it out (a batch in which "
            "more than half of the episodes broke stops the run)."
        )
    tables = {f"env.{number}": env for number, env in enumerate(recipe.env)}
    tables |= {f"eval.env.{number}": env for number, env in enumerate(recipe.eval.env)}
    for key, env in tables.items():
        if env.tools:
            raise RecipeError(
                f"{key}.tools: a server plays environments without tools; leave them out, or use "
                'workers.backend = "process", whose workers have them.'
            )


def server_addresses(workers: WorkersConfig) -> tuple[str, ...]:
    """Return the addresses of the servers, each once."""
    given = workers.address or ()
    return (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        port_is_one = False
    if not port_is_one or parts.scheme not in _KINDS or not parts.hostname:
        raise RecipeError(
            f"workers.address: {address!r} is no address of an environment server: write "
            f'"{_EXAMPLE}".'
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise RecipeError(
            "workers.address: an address has no user, password or query, for a recipe is stored "
            "and shown; the token of the server goes in the variable GEM_CORE_SERVER_TOKEN."
        )
