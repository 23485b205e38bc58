"""Watches the memory and the use of the GPUs while a trainer runs, by ``nvidia-smi``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from types import TracebackType
from typing import Any

INTERVAL_MS = 500
FIELDS = "index,memory.used,utilization.gpu"


class GpuWatch:
    """A context in which ``nvidia-smi`` writes a line per GPU every half second.

    Args:
        gpu: the only one that is watched, as ``CUDA_VISIBLE_DEVICES`` names it; ``None`` = all.
        enabled: whether anything is watched.
    """

    def __init__(self, gpu: str | None = None, *, enabled: bool = True) -> None:
        self._tool = shutil.which("nvidia-smi") if enabled else None
        self._chosen = [] if gpu is None else ["-i", gpu]
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: list[str] = []

    def __enter__(self) -> GpuWatch:
        if self._tool:
            self._file = tempfile.TemporaryFile()
            command = [self._tool, *self._chosen, f"--query-gpu={FIELDS}"]
            command += ["--format=csv,noheader,nounits", "-lms", str(INTERVAL_MS)]
            self._process = subprocess.Popen(command, stdout=self._file, stderr=subprocess.DEVNULL)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        self._process.wait()
        self._file.seek(0)
        self._lines = self._file.read().decode(errors="replace").splitlines()
        self._file.close()

    def data(self) -> dict[str, Any] | None:
        """Return, by GPU, MiB at the start and at most, and the mean use in percent.

        Returns:
            ``None`` where nothing was watched.
        """
        seen: dict[str, list[tuple[int, int]]] = {}
        for line in self._lines:
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == 3 and all(cell.isdigit() for cell in cells):
                seen.setdefault(cells[0], []).append((int(cells[1]), int(cells[2])))
        if not seen:
            return None
        return {
            index: {
                "start_mib": samples[0][0],
                "peak_mib": max(used for used, _ in samples),
                "busy_percent": sum(busy for _, busy in samples) / len(samples),
                "samples": len(samples),
            }
            for index, samples in seen.items()
        }
