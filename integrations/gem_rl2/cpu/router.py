"""Spreads generation requests over engines, with the interface of sglang-router that RL2 uses.

``python -m gem_rl2.cpu.router HOST PORT PARENT URL...``. Ends when the process PARENT ends.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Sequence

import aiohttp
from aiohttp import web


def router(workers: list[str]) -> web.Application:
    """Forwards ``/generate`` to the workers in turn; ``/add_worker?url=`` adds one."""
    turn = itertools.count()
    sessions: list[aiohttp.ClientSession] = []

    async def forward(request: web.Request) -> web.Response:
        if not sessions:
            sessions.append(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)))
        target = workers[next(turn) % len(workers)] + request.path
        headers = {"content-type": "application/json"}
        async with sessions[0].post(target, data=await request.read(), headers=headers) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type="application/json"
            )

    async def add(request: web.Request) -> web.Response:
        workers.append(request.query["url"])
        return web.json_response({})

    async def healthy(request: web.Request) -> web.Response:
        return web.json_response({})

    app = web.Application(client_max_size=1 << 30)
    app.add_routes([web.get("/health", healthy), web.post("/add_worker", add)])
    app.add_routes([web.post("/generate", forward)])
    return app


async def _with_parent(parent: int) -> None:
    """Leave when the parent is gone: a killed run must leave no server behind."""
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    os._exit(0)


async def serve(app: web.Application, host: str, port: int, parent: int) -> None:
    """Serve ``app`` until the process ``parent`` is gone."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    await _with_parent(parent)


def main(arguments: Sequence[str]) -> None:
    """See the module's docstring."""
    host, port, parent, *workers = arguments
    asyncio.run(serve(router(workers), host, int(port), int(parent)))


if __name__ == "__main__":
    main(sys.argv[1:])
