"""The slots of a server: a folder, a user and a Landlock rule set each, for one call at a time."""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple

from . import folders
from .confine import Confinement


class Slot(NamedTuple):
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
    """

    def __init__(self, confinement: Confinement, folder: str, most: int):
        self._confinement = confinement
        self._folder = folder
        self._most = most
        self._made: list[Slot] = []
        self._free: list[int] = []
        self._lost = 0
        os.chmod(folder, 0o711)

    @property
    def any_free(self) -> bool:
        """Whether `take` would return a slot."""
        return bool(self._free) or len(self._made) - self._lost < self._most

    def take(self) -> Slot | None:
        """Return a free slot, or ``None``."""
        if not self.any_free:
            return None
        return self._made[self._free.pop()] if self._free else self._make()

    def __getitem__(self, number: int) -> Slot:
        return self._made[number]

    def usage(self, number: int) -> int | None:
        """Return the bytes on disk in a slot; ``None``: too many files."""
        return folders.usage(self._made[number].folder)

    def give_back(self, number: int) -> None:
        """Empty a slot whose processes are all gone; one that cannot be emptied is left alone."""
        slot = self._made[number]
        main = os.path.join(slot.folder, "main")
        try:
            if os.listdir(slot.folder) != ["main"] or os.path.islink(main) or os.listdir(main):
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
            shutil.rmtree(slot.folder, ignore_errors=True)

    def _make(self) -> Slot:
        number = len(self._made)
        folder = os.path.join(self._folder, f"call-{number}")
        uid = self._confinement.uid(number)
        os.mkdir(folder, 0o700)
        if uid is not None:
            os.chown(folder, uid, uid)
        slot = Slot(number, folder, uid, self._confinement.ruleset(folder))
        self._make_main(slot)
        self._made.append(slot)
        return slot

    def _make_main(self, slot: Slot) -> None:
        main = os.path.join(slot.folder, "main")
        os.mkdir(main, 0o700)
        if slot.uid is not None:
            os.chown(main, slot.uid, slot.uid)
