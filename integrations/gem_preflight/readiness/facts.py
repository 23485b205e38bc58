"""What the checks are told about a machine and its packages, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from gem_core.runs.recipe.recipe import Recipe

Device = Literal["cpu", "gpu"]
GB = 1e9


@dataclass(frozen=True)
class Problem:
    """Why a run could not start.

    Attributes:
        text: what is missing or wrong.
        fix: the exact line that fixes it; empty where ``text`` says all that can be said.
    """

    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.fix}" if self.fix else self.text


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: as its driver calls it.
        bytes: all of its memory.
        capability: CUDA's compute capability, ``(9, 0)``; ``None`` where it is not known.
    """

    name: str
    bytes: int
    capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class Torch:
    """The torch of an environment, as a process of its own sees it.

    Attributes:
        version: ``2.13.0+cpu``.
        cuda: version of CUDA that it was built with; ``None`` = a build for CPUs.
        gpus: the GPUs that it can use, ``CUDA_VISIBLE_DEVICES`` applied.
        nccl: version of NCCL; ``None`` = built without.
        architectures: what it has kernels for, ``("sm_80", "sm_90")``.
        error: why it cannot be imported, or why it cannot use the GPUs; empty if it can.
    """

    version: str
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    nccl: str | None = None
    architectures: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Machine:
    """A machine, as it is without torch.

    Attributes:
        python: version of the interpreter that was asked, ``(3, 11)``.
        gpus: GPUs that the driver lists.
        driver_error: what ``nvidia-smi`` says where it fails.
        nvcc: version of CUDA of the compiler; ``None`` = there is none.
        shm_bytes: size of ``/dev/shm``; ``None`` = there is none.
        disk_bytes: free bytes where runs are written.
        folder: where runs are written.
        hidden: whether ``CUDA_VISIBLE_DEVICES`` hides all GPUs.
    """

    python: tuple[int, int]
    gpus: tuple[Gpu, ...] = ()
    nvcc: str | None = None
    shm_bytes: int | None = None
    disk_bytes: int = 0
    folder: Path = field(default_factory=Path.cwd)
    hidden: bool = False
    driver_error: str = ""


@dataclass(frozen=True)
class Ask:
    """What the run is to be.

    Attributes:
        device: where it is to train; ``None`` = on a GPU if there is one, else on a CPU.
        recipe: the experiment; ``None`` = any small one.
        gigabytes: memory of a GPU to reckon with; ``None`` = that of the GPUs of this machine.
        folder: where it is written.
    """

    device: Device | None = None
    recipe: Recipe | None = None
    gigabytes: float | None = None
    folder: Path = Path("runs")


ANY_RUN = Ask()
"""A small run in ``runs``, on a GPU if there is one."""


class Probe(Protocol):
    """Looks at a machine and at the packages of one environment."""

    def machine(self, folder: Path) -> Machine:
        """Return the machine; runs are to be written below ``folder``."""

    def torch(self) -> Torch | None:
        """Return the environment's torch; ``None`` = not installed."""

    def version(self, distribution: str) -> str | None:
        """Return the version of an installed distribution; ``None`` = not installed."""

    def has_module(self, name: str) -> bool:
        """Return whether a module can be found, without importing it."""

    def requires(self, distribution: str) -> Sequence[str]:
        """Return what an installed distribution declares that it needs; empty = not installed."""

    def built_for(self, distribution: str) -> str | None:
        """Return the torch that a distribution was built for, ``"2.13"``; ``None`` = not known."""

    def import_errors(self, modules: Sequence[str]) -> dict[str, str]:
        """Import ``module`` or ``module:name``; return those that fail, with the reason."""

    def environment_error(self, recipe: Recipe) -> str:
        """Make the environments of a recipe, as a run does first; return why it cannot be done."""
