"""The role of a party whose rows may lie on disk.

It owns when files are made: before a step, never inside it. What a step needs is known only inside
it, so a step that finds too little space gives up. It has changed nothing, because it is pure: the
space is made here, and the same step is made again.
"""

from __future__ import annotations

from typing import Any

from hdpvfl_mq.engine.disk_space import DiskSpace, SpaceNeededError
from hdpvfl_mq.machine import Input, Step
from parties.assets import Assets
from parties.party import Party
from parties.phases import Phase
from parties.process.mapped_arrays import MappedArrays


class StepsOnDisk(Party):
    """A party's role, with space on disk made between its steps."""

    def __init__(self, own: Assets, space: DiskSpace) -> None:
        super().__init__(own)
        self._space = space

    def step(self, state: Phase, given: Input) -> Step[Any]:
        """Apply one move; make space and apply it again if it finds too little."""
        while True:
            try:
                with self._space.fixed():
                    return super().step(state, given)
            except SpaceNeededError as short:
                self._space.grow(short.size)


def role_of(own: Assets) -> Party:
    """The role of a party with these assets."""
    if isinstance(own.allocate, MappedArrays):
        return StepsOnDisk(own, own.allocate.space)
    return Party(own)
