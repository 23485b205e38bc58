"""A taskset as users of verifiers write it: one question, and a reward function."""

from __future__ import annotations

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: int


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=1.0)
    async def right(self, task, trace) -> float:
        return float(str(task.answer) in trace.last_reply)

    @vf.reward(weight=0.5)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 4)


class SumTaskset(vf.Taskset[SumTask]):
    def load(self):
        for first in range(10):
            for second in range(10):
                data = SumData(prompt=f"{first} + {second} = ?", answer=first + second)
                yield SumTask(data, self.config.task)


__all__ = ["SumTaskset"]
