"""What a liar says: any bytes, signed with its real key, besides what its honest role sends.

It owns signing and sending; the lies are in the lies_ modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.codec import Frames, encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.envelope import Header
from schemas.messages import Message
from schemas.privacy import Release
from schemas.tensor import Tensor

Lie = Callable[[Node, Send], tuple[Effect, ...]]


def with_fields(message: Message, **changes: Any) -> Message:
    changed: Message = type(message)(**{**dict(message), **changes})
    return changed


def with_values(release: Release, values: Any) -> Release:
    return Release(**{**dict(release), "tensor": Tensor.of(values)})


def say(node: Node, to: tuple[str, ...], message: Message) -> None:
    """Sign and send a message without an entry in the liar's own ledger."""
    body, arrays = encode_body(message)
    send_signed(node, to, message.kind, body, arrays)


def send_signed(
    node: Node, to: tuple[str, ...], kind: str, body: bytes, arrays: Frames = ()
) -> None:
    """Sign and send any bytes."""
    numbers = {party: node.mailbox._outbox[party].number() for party in to}
    deliveries = tuple(node.mailbox._delivery(p, n) for p, n in numbers.items())
    stamp = node._stamp()
    header = encode_header(
        Header(
            version=node.identity.versions[1],
            run=node.identity.run,
            sender=node.identity.party,
            epoch=max(1, stamp.epoch),
            kind=kind,
            to=deliveries,
            parent=bytes(32),
            head=stamp.head,
            size=stamp.size,
            root=stamp.root,
        )
    )
    signature = sign(node.identity.signing_key, envelope_digest(header, body, arrays))
    frames = (header, signature, body, *arrays)
    for party, number in numbers.items():
        node.mailbox._outbox[party].keep(number, frames, len(body))
    node._uncommitted.send.append(frames)
