"""The slots of a server: a folder, a user and a Landlock rule set each, for one call at a time."""

from __future__ import annotations

import os
import shutil
import stat
from typing import NamedTuple

from . import folders, held, libc, volumes
from .confine import Confinement
from .interpreter import Family

_LOOKS = 5
"""Looks at a program until a process that cannot be seen is taken for one that hides itself."""


class ProgramSlot(NamedTuple):
    """A place for one program.

    Attributes:
        number: its number.
        folder: the folder that it may write to; programs start in ``main`` in it.
        uid: its user; ``None``: the server's.
        ruleset: descriptor of its Landlock rule set, or -1.
    """

    number: int
    folder: str
    uid: int | None
    ruleset: int


class Slots:
    """Makes slots when they are needed and uses them again.

    Args:
        confinement: how programs are confined.
        folder: where the slots' folders are made.
        most: how many slots there may be.
        volume: how each gets a volume, `volumes.OWN` or `volumes.GIVEN`; ``""``: it has none, and
            the server looks at what a program's files take.
        most_mb: size of a volume at most.
    """

    def __init__(self, confinement: Confinement, folder: str, most: int, volume: str, most_mb: int):
        self._confinement = confinement
        self._folder = folder
        self._most = most
        self._made: list[ProgramSlot] = []
        self._free: list[int] = []
        self._lost = 0
        self._volume = volume
        self._most_size = most_mb << 20
        self._sizes: dict[int, int] = {}
        os.chmod(folder, 0o711)

    @property
    def any_free(self) -> bool:
        """Whether `take` would return a slot."""
        return bool(self._free) or len(self._made) - self._lost < self._most

    def take(self) -> ProgramSlot | None:
        """Return a free slot, or ``None``."""
        if not self.any_free:
            return None
        return self._made[self._free.pop()] if self._free else self._make()

    def __getitem__(self, number: int) -> ProgramSlot:
        return self._made[number]

    @property
    def volumes(self) -> bool:
        """Whether the kernel holds the size of a slot's files."""
        return bool(self._volume)

    def limit(self, number: int, size: int) -> bool:
        """Set how much a slot's files may take; return whether they do not take more already."""
        size = min(size, self._most_size)
        if self._volume == volumes.OWN and self._sizes[number] != size:
            try:
                volumes.resize(self._made[number].folder, size)
            except OSError:
                return False
            self._sizes[number] = size
        return True

    def usage(self, family: Family, *, several: bool, most_file: int) -> int | None:
        """Return the bytes that a program's files take, also of those that it has removed.

        Args:
            family: its processes.
            several: whether there may be more than one.
            most_file: bytes of the largest file that it may write.

        Returns:
            ``None``: more files or mappings than are allowed, or a process that hides itself.
        """
        slot = self._made[family.slot]
        if self._volume:
            return volumes.usage(slot.folder)
        seen: set[int] = set()
        total = folders.usage(slot.folder, seen)
        with libc.as_user(slot.uid if self._confinement.looks_as_user else None):
            pids = held.processes(family.leader, several=several)
            for pid in set(pids) - family.ending:
                try:
                    without_name = held.count_held_bytes(pid, seen, most_file)
                except held.Unseen:
                    family.unseen[pid] = family.unseen.get(pid, 0) + 1
                    without_name = 0 if family.unseen[pid] < _LOOKS else None
                if total is None or without_name is None:
                    return None
                total += without_name
        return total

    def try_to_look(self, family: Family) -> None:
        """Look at the files of a child that has just started.

        Raises:
            held.Unseen: this machine does not allow it, so a limit could not be held.
        """
        if not self._volume:
            with libc.as_user(
                self._made[family.slot].uid if self._confinement.looks_as_user else None
            ):
                held.count_held_bytes(family.leader, set(), 0)

    def give_back(self, number: int) -> None:
        """Empty a slot whose processes are all gone; one that cannot be emptied is left alone."""
        slot = self._made[number]
        try:
            if not _is_new(slot):
                os.chmod(slot.folder, 0o700)
                folders.empty(slot.folder)
                self._make_main(slot)
        except OSError:
            self._lost += 1
            return
        self._free.append(number)

    def close(self) -> None:
        """Remove the folders."""
        for slot in self._made:
            if slot.ruleset >= 0:
                os.close(slot.ruleset)
            folders.empty(slot.folder)
            if self._volume != volumes.GIVEN:
                shutil.rmtree(slot.folder, ignore_errors=True)

    def _make(self) -> ProgramSlot:
        number = len(self._made)
        folder = os.path.join(self._folder, f"call-{number}")
        uid = self._confinement.uid(number)
        if self._volume != volumes.GIVEN:
            os.mkdir(folder, 0o700)
        if self._volume == volumes.OWN:
            volumes.mount(folder, uid, self._most_size)
            self._sizes[number] = self._most_size
        if uid is not None:
            os.chown(folder, uid, uid)
        slot = ProgramSlot(number, folder, uid, self._confinement.ruleset(folder))
        self._make_main(slot)
        self._made.append(slot)
        return slot

    def _make_main(self, slot: ProgramSlot) -> None:
        main = os.path.join(slot.folder, "main")
        os.mkdir(main, 0o700)
        if slot.uid is not None:
            os.chown(main, slot.uid, slot.uid)


def _is_new(slot: ProgramSlot) -> bool:
    """Return whether a slot's folders are as they were made; a program may replace them."""
    main = os.path.join(slot.folder, "main")
    if os.listdir(slot.folder) != ["main"]:
        return False
    for folder in (slot.folder, main):
        about = os.lstat(folder)
        if about.st_mode != stat.S_IFDIR | 0o700 or (slot.uid or about.st_uid) != about.st_uid:
            return False
    return not os.listdir(main)
