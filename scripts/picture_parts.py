"""Parts of the pictures of the pages, as SVG text."""

from __future__ import annotations

from collections.abc import Sequence

GREY, BLUE, GREEN, RED, INK = "#d9dde3", "#4c78a8", "#4f9d69", "#c8553d", "#222222"


def svg(width: int, height: int, parts: Sequence[str]) -> str:
    """Return a picture on white ground, so that it can be read on a dark page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13" fill="{INK}">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])


def box(x: float, y: float, width: float, height: float, colour: str, text: str = "") -> str:
    """Return a rectangle with a text in its middle."""
    ink = INK if colour in (GREY, "white") else "white"
    rect = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{colour}" '
        'stroke="white"/>'
    )
    return rect + write(x + width / 2, y + height / 2 + 4.5, text, ink, "middle") if text else rect


def write(x: float, y: float, text: str, colour: str = INK, anchor: str = "start") -> str:
    """Return a line of text."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{safe}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = INK) -> str:
    """Return a thin line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"/>'


def bracket(x1: float, x2: float, y: float, text: str) -> list[str]:
    """Return a bracket below the width from x1 to x2, with a text under it."""
    ends = [line(x, y, x, y + 5) for x in (x1, x2)]
    return [*ends, line(x1, y + 5, x2, y + 5), write((x1 + x2) / 2, y + 20, text, INK, "middle")]
