"""A node's journal as it grows: each record is chained to the one before and added to the tree.

It owns head, number of steps, Merkle tree and what a turn has not committed yet; it knows no role
and no message.
"""

from __future__ import annotations

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.node.mailbox import Stamp
from hdpvfl_mq.node.ports import RecordStore
from hdpvfl_mq.node.uncommitted import Uncommitted
from hdpvfl_mq.wire.codec import Frames
from schemas.records import GENESIS, EnvelopeSent, RecordedEffect, RecordedInput, StepRecord


class Chained:
    """The chain of one journal and the records that are not on disk yet."""

    def __init__(self, journal: RecordStore) -> None:
        self.head = GENESIS
        self.epoch = 0
        self.steps = 0
        self.tree = Tree()
        self._journal = journal
        self._uncommitted = Uncommitted()

    def close(self) -> None:
        """Close the journal; the node takes no turn after this."""
        self._journal.close()

    def _append(
        self, recorded: RecordedInput, effects: tuple[RecordedEffect, ...], *, waits: bool = False
    ) -> None:
        """Append one record to the chain; one that `waits` needs no commit of its own."""
        record = chain.encode(
            StepRecord(index=self.steps, previous=self.head, input=recorded, effects=effects)
        )
        self.head = chain.link(record)
        self.tree.append(self.head)
        self._uncommitted.add((self.steps, record, self.head), waits=waits)
        self.steps += 1

    def _stamp(self) -> Stamp:
        return Stamp(self.epoch, self.head, self.tree.size, self.tree.root())

    def stored_record(self, index: int) -> tuple[int, bytes, bytes] | None:
        """One record as stored, checked against its digest; None if there is none."""
        found = next(iter(self._journal.records(index)), None)
        if found is None or found[0] != index:
            return None
        if chain.link(found[1]) != found[2]:
            raise IntegrityError(f"journal record {index} does not match its digest")
        return found

    def sent_by(self, index: int) -> list[Frames]:
        """The envelopes that one record sent."""
        stored = self.stored_record(index)
        if stored is None:
            raise IntegrityError(f"journal record {index} is missing")
        effects = chain.decode(stored[1], index).effects
        return [effect.frames for effect in effects if isinstance(effect, EnvelopeSent)]
