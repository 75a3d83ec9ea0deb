"""Snapshots of a node: what a process needs to continue without replaying its whole journal.

It owns which parts of a node a snapshot holds and when one is believed; it knows no file.
"""

from __future__ import annotations

from hdpvfl_mq import __version__
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.codec import decode_header
from schemas.snapshot import NodeSnapshot
from schemas.tensor import Tensor


def take(node: Node) -> NodeSnapshot | None:
    """A snapshot of what is on disk, or None while records wait or a state cannot be frozen."""
    if not node.is_committed:
        return None
    # A snapshot does not say who has left: by then it would save no time.
    is_between = node.steps > 0 and node.outcome is None and not node.mailbox.is_ending
    state = node.role.freeze(node.state) if is_between else None
    marks = node.mailbox.marks() if state is not None else ()
    if state is None or marks is None:
        return None
    # An envelope states the size of its sender's journal, which is the index of its record.
    waiting = {decode_header(frames).size for frames in node.mailbox.unacknowledged()}
    greeting = node.mailbox.greeting
    return NodeSnapshot(
        version=__version__,
        party=node.identity.party,
        steps=node.steps,
        head=node.head,
        peaks=node.tree.peaks,
        epoch=node.epoch,
        streams=marks,
        unacknowledged=Tensor.of_counts(sorted(waiting)),
        greeting=-1 if greeting is None else decode_header(greeting).size,
        timers=tuple(node.armed.values()),
        is_ledger_due=node.is_ledger_due,
        ledger=() if node.ledger is None else node.ledger.heads(),
        state=state,
    )


def resume(node: Node, snapshot: NodeSnapshot) -> bool:
    """Continue a node from a snapshot, before it opens.

    Returns False and changes nothing if the snapshot is not of this journal, this ledger, these
    rows and this program.
    """
    if snapshot.version != __version__ or snapshot.party != node.identity.party:
        return False
    # With an older ledger or account of scored people every record is replayed: that books and
    # counts what it lacks.
    ledger = node.ledger
    if ledger is not None and (not snapshot.ledger or not ledger.has_heads(snapshot.ledger)):
        return False
    last = node.stored_record(snapshot.steps - 1)
    if last is None or last[2] != snapshot.head:
        return False
    state = node.role.thaw(snapshot.state)
    if state is None:
        return False
    node.state, node.steps, node.head = state, snapshot.steps, snapshot.head
    node.tree = Tree(snapshot.steps, snapshot.peaks)
    node.epoch, node.is_ledger_due = snapshot.epoch, snapshot.is_ledger_due
    node.armed = {arm.timer: arm for arm in snapshot.timers}
    waiting = [f for i in snapshot.unacknowledged.counts() for f in node.sent_by(i)]
    greeting = node.sent_by(snapshot.greeting)[-1] if snapshot.greeting >= 0 else None
    node.mailbox.restore(snapshot.streams, waiting, greeting)
    return True
