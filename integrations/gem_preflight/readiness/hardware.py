"""Checks of the machine: GPUs, the build of torch, compiler, memory that is shared, disk."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.runs.install import Stack
from gem_preflight.readiness.facts import GB, Gpu, Machine, Problem, Torch

CPU_DISK_GB = 1.0
"""Free disk of a tiny run: its checkpoints are a few megabytes, its episodes tens."""
GPU_DISK_GB = 10.0
"""Free disk where no recipe says more: one checkpoint of a 0.6B model with its optimizer."""
NCCL_SHM_GB = 1.0
"""Shared memory below which NCCL may fail to connect the GPUs of a machine."""
OLDEST = (8, 0)
"""Compute capability that bfloat16 and flash-attn need: Ampere."""


def gpus_here(machine: Machine, torch: Torch | None) -> list[Problem]:
    """Check that a GPU can be used: there is one, and torch is built for it and reaches it."""
    if torch is not None and torch.gpus:
        return []
    if machine.hidden:
        return [Problem("CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES")]
    if machine.driver_error:
        return [Problem(f"the driver does not work: nvidia-smi says {machine.driver_error}")]
    if not machine.gpus:
        return [Problem("no GPU was found: nvidia-smi lists none; use a machine with one")]
    return []  # what torch lacks is said by `torch_build`


def torch_build(machine: Machine, torch: Torch | None, stack: Stack) -> list[Problem]:
    """Check that torch is a build for CUDA, has NCCL and can use the GPUs of this machine."""
    line = stack.line_for("torch")
    if torch is None:
        return [Problem("torch is not installed", line)]
    if torch.cuda is None:
        return [
            Problem(
                f"torch {torch.version} is a build for CPUs"
                + (f" ({torch.error})" if torch.error else ""),
                f"pip uninstall -y torch && {line}",
            )
        ]
    problems = []
    if machine.gpus and not torch.gpus and not machine.hidden:
        why = torch.error or "torch.cuda.is_available() is false"
        problems.append(
            Problem(
                f"torch {torch.version} cannot use the GPU ({why}): install a driver for CUDA "
                f"{torch.cuda} or newer"
            )
        )
    if torch.gpus and torch.nccl is None:
        problems.append(Problem(f"torch {torch.version} has no NCCL", line))
    return problems


def gpu_models(torch: Torch | None, stack: Stack) -> list[Problem]:
    """Check that the GPUs are new enough for the packages, and not too new for torch."""
    problems = []
    for gpu in {gpu.name: gpu for gpu in (torch.gpus if torch else ())}.values():
        if gpu.capability is None:
            continue
        level = f"{gpu.capability[0]}.{gpu.capability[1]}"
        if gpu.capability < OLDEST and stack.flash_attn:
            problems.append(
                Problem(f"{gpu.name} has compute capability {level}; flash-attn needs 8.0 or more")
            )
        elif torch and torch.architectures and not _has_kernels(gpu, torch.architectures):
            problems.append(
                Problem(
                    f"torch {torch.version} has no kernels for {gpu.name} (compute capability "
                    f"{level}): this trainer pins that torch, so use another trainer or GPU"
                )
            )
    return problems


def _has_kernels(gpu: Gpu, architectures: Sequence[str]) -> bool:
    """Binary kernels run on later minor levels of the same major one; PTX on all later levels."""
    assert gpu.capability is not None
    for name in architectures:
        kind, _, digits = name.partition("_")
        number = "".join(ch for ch in digits if ch.isdigit())
        if len(number) < 2:
            continue
        level = (int(number[:-1]), int(number[-1]))
        same = level[0] == gpu.capability[0] and level <= gpu.capability
        if same or (kind == "compute" and level <= gpu.capability):
            return True
    return False


def compiler(machine: Machine, torch: Torch | None, stack: Stack, builds: bool) -> list[Problem]:
    """Check the CUDA toolkit, where something is compiled.

    Args:
        machine: has the compiler, or not.
        torch: whose CUDA the compiler must have.
        stack: whether operators are compiled when a run starts.
        builds: whether flash-attn must still be built.
    """
    if torch is None or torch.cuda is None or not (stack.nvcc or builds):
        return []
    what = "DeepSpeed compiles operators" if stack.nvcc else "flash-attn is built"
    fix = f"install the CUDA toolkit {torch.cuda} and set CUDA_HOME to it"
    if machine.nvcc is None:
        return [Problem(f"nvcc is not here, and {what} with it", fix)]
    if machine.nvcc.split(".")[0] != torch.cuda.split(".")[0]:
        return [
            Problem(f"nvcc is of CUDA {machine.nvcc}, torch {torch.version} of {torch.cuda}", fix)
        ]
    return []


def shared_memory(machine: Machine, gpus: int, stack: Stack) -> tuple[list[Problem], list[str]]:
    """Check the size of ``/dev/shm``.

    Returns:
        Problems, and notes on what is slow rather than impossible.
    """
    size = (machine.shm_bytes or 0) / GB
    fix = f"start the container with --shm-size={max(stack.shm_gb, stack.shm_taken_gb):.0f}g"
    if gpus > 1 and size < NCCL_SHM_GB:
        return [Problem(f"/dev/shm has {size:.2f} GB; NCCL needs {NCCL_SHM_GB:.0f}", fix)], []
    if size < stack.shm_taken_gb:
        return [
            Problem(f"/dev/shm has {size:.2f} GB; {stack.shm_taken_gb:.0f} are taken at start", fix)
        ], []
    if size < stack.shm_gb:
        slow = ": Ray then moves data through /tmp, which is slow" if stack.ray else ""
        return [], [
            f"/dev/shm has {size:.2f} GB of {stack.shm_gb:.0f} that are advised{slow}; {fix}"
        ]
    return [], []


def disk(machine: Machine, needed_gb: float) -> list[Problem]:
    """Check the free disk where runs are written."""
    free = machine.disk_bytes / GB
    if free >= needed_gb:
        return []
    return [
        Problem(
            f"{machine.folder} has {free:.1f} GB of free disk, and the checkpoints of a run take "
            f"{needed_gb:.0f} GB: free some, or write the run elsewhere (--run)"
        )
    ]
