"""The threads of a worker in which environments that may block are called."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

Job: TypeAlias = Callable[[int], None]
"""Makes a call; its argument is the slot of the thread, see `gem_core.execution.workers.marks`."""


class JobThreads:
    """Daemon threads that take jobs in their order.

    A thread that takes a job wakes another one for the next, and goes on itself if that has not
    come: jobs that return at once need one thread and no switches between threads.
    """

    def __init__(self, size: int, first_slot: int) -> None:
        self._size = size
        self._first_slot = first_slot
        self._jobs: deque[Job] = deque()
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._waking = False  # a token is there that no thread has taken
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    @property
    def has_waiting(self) -> bool:
        """Whether jobs wait for a thread."""
        return bool(self._jobs)

    def submit(self, job: Job) -> None:
        """Run a job as soon as a thread is free."""
        self._jobs.append(job)
        self._wake_one()

    def _wake_one(self) -> None:
        with self._lock:
            if self._waking:
                return  # the thread that takes the token looks for jobs after it
            self._waking = True
            starts = self._idle == 0 and self._started < self._size
            self._started += starts
            self._idle += starts
            slot = self._first_slot + self._started - 1
        self._tokens.put(None)
        if starts:
            name = f"gem-env-{slot}"
            threading.Thread(target=self._serve, args=(slot,), daemon=True, name=name).start()

    def _serve(self, slot: int) -> None:
        while True:
            self._tokens.get()
            with self._lock:
                self._idle -= 1
                self._waking = False
            self._run_jobs(slot)
            with self._lock:
                self._idle += 1

    def _run_jobs(self, slot: int) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            if self._jobs:
                self._wake_one()
            job(slot)
