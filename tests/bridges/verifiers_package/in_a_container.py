"""A taskset whose tasks prepare a container."""

from __future__ import annotations

import verifiers.v1 as vf


class BoxedTask(vf.Task[vf.TaskData]):
    async def setup(self, trace, runtime) -> None:
        await runtime.write("file", b"")


class BoxedTaskset(vf.Taskset[BoxedTask]):
    def load(self):
        yield BoxedTask(vf.TaskData(prompt="?"), self.config.task)


__all__ = ["BoxedTaskset"]
