"""Two optimizer steps of a random Qwen3 model, and what they took at their peak.

`measure` forks a process for each figure, so that the libraries are loaded once and every
measurement begins with the same memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from cases import SIZES, Case
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3Config, Qwen3ForCausalLM

from gem_preflight.shapes import Shape

WARM = Shape(64, 1, 1, 1, 64, 64, 64, True)


def model_of(shape: Shape, case: Case) -> Any:
    """Return a random model of these sizes, ready to train as the case says."""
    config = Qwen3Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        use_cache=False,
        dtype="bfloat16" if case.precision == "bfloat16" else "float32",
    )
    model = Qwen3ForCausalLM._from_config(config)  # in config.dtype from the beginning
    if sum(weight.numel() for weight in model.parameters()) != shape.parameters:
        raise ValueError("Shape.parameters does not count this model's weights.")
    if case.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def steps(shape: Shape, case: Case, rows: int, length: int) -> None:
    """Take two optimizer steps; in the second the optimizer's states exist."""
    model = model_of(shape, case)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, shape.vocab, (rows, length))
    cast: Any = contextlib.nullcontext()
    if case.precision == "autocast":
        cast = torch.autocast("cpu", torch.bfloat16)
    for _ in range(2):
        for _ in range(case.passes):
            with cast:
                logits = model(input_ids=ids).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
            loss.backward()
            del logits
        optimizer.step()
        optimizer.zero_grad()


def default() -> None:
    """Leave glibc as it is."""


def mapped() -> None:
    """Give every block of 64 KiB or more pages of its own, which are returned when it is freed."""
    threshold = -3  # M_MMAP_THRESHOLD; setting it also ends its growth
    if not ctypes.CDLL(None).mallopt(threshold, 65536):
        raise OSError("glibc refused the setting.")


def measure(case: Case, figure: Callable[[Case], int], allocator: Callable[[], object]) -> int:
    """Return a figure of a case, from a process of its own.

    Raises:
        RuntimeError: the process failed.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, case, figure, allocator))
    child.start()
    there.close()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{case.name}: exit code {child.exitcode}")
    return int(here.recv())


def _child(
    out: Connection, case: Case, figure: Callable[[Case], int], allocator: Callable[[], object]
) -> None:
    allocator()
    out.send(figure(case))


def warm() -> None:
    """Load the libraries: take the steps of a small model in each precision."""
    torch.set_num_threads(1)
    for precision in ("float32", "bfloat16", "autocast"):
        steps(WARM, Case("warm", 1, 16, True, precision), 1, 16)


def resident(case: Case) -> int:
    """Return the growth of the peak resident memory in bytes.

    A forked process has the pages of the libraries once it used them: the small model does so.
    """
    steps(WARM, case, 1, 16)
    before = _status("VmRSS")
    steps(SIZES[case.size], case, case.rows, case.length)
    return _status("VmHWM") - before


def tensors(case: Case) -> int:
    """Return the most bytes that were allocated at one time, by PyTorch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        steps(SIZES[case.size], case, case.rows, case.length)
    results = profiler.profiler.kineto_results
    events = [event for root in results.experimental_event_tree() for event in _allocations(root)]
    sizes: dict[int, int] = {}
    now = most = 0
    for _, address, size in sorted(events):
        if size > 0:
            sizes[address] = size
            now += size
        else:  # what the small model left is freed too, and was not counted
            now -= sizes.pop(address, 0)
        most = max(most, now)
    return most


def _allocations(event: Any) -> list[tuple[int, int, int]]:
    """Return time, address and bytes (negative: freed) of an event and of those inside it."""
    found = []
    if event.tag == torch._C._profiler._EventType.Allocation:
        fields = event.extra_fields
        found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    for child in event.children:
        found += _allocations(child)
    return found


def _status(field: str) -> int:
    """Return ``VmRSS`` (now) or ``VmHWM`` (peak) of this process in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(field))
    return int(line.split()[1]) * 1024
