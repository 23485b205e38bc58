"""``gem-core view``: runs and their episodes in a browser."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_view.api import Viewer


def view(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, or write it to a file."""
    from gem_view.api import Viewer
    from gem_view.export import export
    from gem_view.server import make_server

    paths = arguments.runs or [Path("runs")]
    if arguments.export:
        viewer = Viewer(paths)
        target = export(viewer, arguments.export, arguments.episodes)
        _say_left_out(viewer)
        print(f"{target} ({target.stat().st_size:,} bytes)")
        return 0
    with make_server(paths, arguments.port) as server:
        _say_left_out(server.viewer)
        print(f"{len(server.viewer.runs)} runs: {server.address}  (Ctrl-C ends it)", flush=True)
        if arguments.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _say_left_out(viewer: Viewer) -> None:
    for line in viewer.left_out:
        print(f"Left out: {line}", file=sys.stderr)
