"""Questions about drawings of triangles and rectangles."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

SIZE = 120
GLYPHS = {
    "0": ("111", "101", "101", "101", "111"), "1": ("010", "110", "010", "010", "111"),
    "2": ("111", "001", "111", "100", "111"), "3": ("111", "001", "111", "001", "111"),
    "4": ("101", "101", "111", "001", "001"), "5": ("111", "100", "111", "001", "111"),
    "6": ("111", "100", "111", "101", "111"), "7": ("111", "001", "010", "010", "010"),
    "8": ("111", "101", "111", "101", "111"), "9": ("111", "101", "111", "001", "111"),
    "?": ("111", "001", "011", "000", "010"),
}  # fmt: skip
"""The characters of a drawing, 3x5 pixels each."""


class Drawing:
    """A black-and-white picture."""

    def __init__(self) -> None:
        self.pixels = [[1] * SIZE for _ in range(SIZE)]

    def dot(self, x: int, y: int) -> None:
        """Set a pixel, if it is in the picture."""
        if 0 <= x < SIZE and 0 <= y < SIZE:
            self.pixels[y][x] = 0

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """Draw a line between two points."""
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            self.dot(x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps))

    def text(self, x: int, y: int, text: str) -> None:
        """Write characters of double size from the upper left corner ``(x, y)``."""
        for number, character in enumerate(text):
            self._character(x + 8 * number, y, GLYPHS[character])

    def _character(self, x: int, y: int, glyph: tuple[str, ...]) -> None:
        for row, bits in enumerate(glyph):
            for column, bit in enumerate(bits):
                if bit == "1":
                    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
                        self.dot(x + 2 * column + dx, y + 2 * row + dy)

    def png(self) -> str:
        """Return the picture as a one-bit PNG in base64."""
        rows = b""
        for row in self.pixels:
            bits = "".join(map(str, row)).ljust(-(-SIZE // 8) * 8, "1")
            rows += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
        header = struct.pack(">IIBBBBB", SIZE, SIZE, 1, 0, 0, 0, 0)
        body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
        body += chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
        return base64.b64encode(body).decode()


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def right_triangle(r: Random) -> tuple[str, str, Drawing]:
    """Return a question about the hypotenuse of a right triangle."""
    a, b, c = r.choice(((3, 4, 5), (6, 8, 10), (5, 12, 13), (8, 15, 17), (9, 12, 15), (7, 24, 25)))
    drawing = Drawing()
    drawing.line(20, 100, 100, 100)
    drawing.line(20, 100, 20, 30)
    drawing.line(20, 30, 100, 100)
    drawing.line(20, 92, 28, 92)
    drawing.line(28, 92, 28, 100)
    drawing.text(2, 60, str(a))
    drawing.text(52, 106, str(b))
    drawing.text(66, 50, "?")
    return "Find the length marked with a question mark in the right triangle.", str(c), drawing


def rectangle(r: Random) -> tuple[str, str, Drawing]:
    """Return a question about the area of a rectangle."""
    a = r.randint(3, 19)
    b = r.randint(3, 19)
    drawing = Drawing()
    drawing.line(20, 30, 100, 30)
    drawing.line(100, 30, 100, 95)
    drawing.line(100, 95, 20, 95)
    drawing.line(20, 95, 20, 30)
    drawing.text(52, 101, str(a))
    drawing.text(103, 58, str(b))
    return "What is the area of the rectangle?", str(a * b), drawing


def angles(r: Random) -> tuple[str, str, Drawing]:
    """Return a question about the third angle of a triangle."""
    a = r.randint(30, 80)
    b = r.randint(30, 80)
    drawing = Drawing()
    drawing.line(10, 100, 110, 100)
    drawing.line(10, 100, 50, 20)
    drawing.line(50, 20, 110, 100)
    drawing.text(24, 86, str(a))
    drawing.text(78, 86, str(b))
    drawing.text(46, 36, "?")
    return (
        "The angles of the triangle are in degrees. Find the one marked with a question mark.",
        str(180 - a - b),
        drawing,
    )


def questions(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield questions with a drawing each."""
    r = Random(seed)
    kinds = (right_triangle, rectangle, angles)
    for number in range(count):
        question, answer, drawing = kinds[number % 3](r)
        image = {"type": "image/png", "data": drawing.png()}
        yield {"question": f"<image>{question}", "answer": answer, "images": [image]}
