"""The form of an envelope, beyond its schema, that a node demands before it records one.

It owns these rules; it knows no stream. A peer could otherwise sign something that is recorded and
makes its receiver's journal look damaged: gaps where a number was used, or a second delivery that
auditors read in place of the first.
"""

from __future__ import annotations

from collections.abc import Mapping

from hdpvfl_mq.errors import CheatingError
from hdpvfl_mq.node.ports import Contact
from hdpvfl_mq.wire.codec import Frames, encode_body
from schemas.delivery import Ack
from schemas.envelope import Delivery, Header
from schemas.ids import PartyId
from schemas.messages import ROUTES, UNNUMBERED

_ACK_BODY = encode_body(Ack())[0]  # acknowledgements are recorded without being decoded


def check_form(
    header: Header, mine: Delivery, frames: Frames, contacts: Mapping[PartyId, Contact]
) -> None:
    """CheatingError unless an honest peer could have written this; its signature has been verified.

    `mine` is the first delivery addressed to the receiver; the receiver uses no other.
    """
    sender, is_numbered = header.sender, mine.sequence > 0
    if len({delivery.party for delivery in header.to}) != len(header.to):
        raise CheatingError(f"an envelope of {sender} names a receiver twice")
    roles = {contacts[d.party].role for d in header.to if d.party in contacts}
    if not roles <= ROUTES[header.kind][1]:
        raise CheatingError(
            f"a {header.kind} of {sender} is addressed to others who may not get it"
        )
    if is_numbered == (header.kind in UNNUMBERED):
        has = "has" if is_numbered else "lacks"
        raise CheatingError(f"a message {header.kind} of {sender} {has} a sequence number")
    if header.kind == "ack" and frames[2:] != (_ACK_BODY,):
        raise CheatingError(f"an acknowledgement of {sender} has another body")
