"""The most bytes of tensors that live at one time, by PyTorch's own list of allocations."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile


def peak(function):
    """Call ``function``; return the most bytes that were allocated at one time meanwhile."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    tree = profiler.profiler.kineto_results.experimental_event_tree()
    live = {}
    now = most = 0
    for _, address, size in sorted(event for root in tree for event in _allocations(root)):
        if size > 0:
            live[address] = size
            now += size
        else:  # what was there before is freed too, and was not counted
            now -= live.pop(address, 0)
        most = max(most, now)
    return most


def _allocations(event):
    """Time, address and bytes (negative: freed) of an event and of those inside it."""
    if event.tag.name == "Allocation":
        fields = event.extra_fields
        yield event.start_time_ns, fields.ptr, fields.alloc_size
    for child in event.children:
        yield from _allocations(child)
