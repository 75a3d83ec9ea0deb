"""Messages about the delivery of others: acknowledgements, and parts of large arrays.

It owns these shapes and their limits; hdpvfl_mq/node defines what they do. They have no place in a
stream and no record: the envelope they belong to has.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Count, Strict
from schemas.envelope import MAX_PART_BYTES, MAX_PARTS
from schemas.route import ALL_ROLES, ANY_PARTY, Route
from schemas.tensor import Tensor

MAX_PARTS_ASKED = 16  # parts of a large array that one request may ask for
PartNumber = Annotated[int, Field(ge=0, lt=MAX_PARTS)]


class Ack(Strict):
    """No content: the acknowledgements are in the header."""

    kind: Literal["ack"] = "ack"
    route: ClassVar[Route] = Route(ALL_ROLES, ALL_ROLES, is_numbered=False)


class PartRequest(Strict):
    """Asks for parts of the large array whose digests the receiver's envelope lists."""

    kind: Literal["part_request"] = "part_request"
    route: ClassVar[Route] = Route(ANY_PARTY, ANY_PARTY, is_numbered=False)
    sequence: Count  # of that envelope, on its way to the sender of this request
    numbers: Annotated[tuple[PartNumber, ...], Field(min_length=1, max_length=MAX_PARTS_ASKED)]


class Part(Strict):
    """One part of a large array; the envelope with this sequence number lists its digest."""

    kind: Literal["part"] = "part"
    route: ClassVar[Route] = Route(
        ANY_PARTY, ANY_PARTY, array_bytes=MAX_PART_BYTES, is_numbered=False
    )
    sequence: Count
    number: PartNumber
    tensor: Tensor


DeliveryMessage = Ack | PartRequest | Part
