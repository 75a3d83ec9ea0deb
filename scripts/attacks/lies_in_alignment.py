"""Lies in entity resolution: this process seals blocks that its protocol does not make.

Each change is made once, before the production process starts. The seals are right, so a receiver
must notice what is inside: points, sizes, buckets, stores, common ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from nacl.bindings import crypto_core_ed25519_add

from hdpvfl_mq.psi.blocks import Outgoing
from hdpvfl_mq.psi.exchange import Exchange
from hdpvfl_mq.psi.match import PAIR_BYTES, pack_verdict, read_verdict
from parties import alignment

IDENTITY = bytes([1]) + bytes(31)
ORDER_2 = (2**255 - 20).to_bytes(32, "little")  # the point (0, -1)
NOT_CANONICAL = (2**255 - 19 + 3).to_bytes(32, "little")
Change = Callable[[str, bytes], bytes]  # receiver, what its block holds


def _with_torsion(point: bytes) -> bytes:
    """A point of full order that is not of prime order: adding it would show a secret bit."""
    return crypto_core_ed25519_add(point, ORDER_2)


def _seal(stage: str, change: Change) -> None:
    """Seal something else in every block of a stage."""
    honest_string = Exchange._sealed
    honest_block = Exchange._block

    def sealed(self: Exchange, to: str, named: str, payload: bytes) -> Outgoing:
        return honest_string(self, to, named, change(to, payload) if named == stage else payload)

    def block(self: Exchange, work: Any, to: str, sending: Any, index: int) -> Outgoing:
        made = honest_block(self, work, to, sending, index)
        if sending.stage != stage:
            return made
        link, place = self.links[to], (made.stage, made.index, made.last, made.meta)
        clear = replace(link, receive_key=link.send_key).unseal(place, made.payload)
        assert clear is not None, "it opens what it sealed itself"
        return replace(made, payload=link.seal(place, change(to, clear)))

    setattr(Exchange, "_sealed", sealed)  # noqa: B010 - this process is the liar
    setattr(Exchange, "_block", block)  # noqa: B010 - this process is the liar


def _of_another_bucket(stage: str) -> None:
    """Name a bucket that is not the one due."""
    honestly = Exchange._block

    def block(self: Exchange, work: Any, to: str, sending: Any, index: int) -> Outgoing:
        other = replace(sending, bucket=sending.bucket + 1) if sending.stage == stage else sending
        return honestly(self, work, to, other, index)

    setattr(Exchange, "_block", block)  # noqa: B010 - this process is the liar


def _twice(stage: str) -> None:
    """Send every block of a stage a second time, after those that follow it."""
    honestly = vars(alignment)["_blocks"]  # fails if it has moved: no lie would be told

    def blocks(outgoing: tuple[Outgoing, ...]) -> Any:
        again = tuple(each for each in outgoing if each.stage == stage)
        return honestly((*outgoing, *again))

    setattr(alignment, "_blocks", blocks)  # noqa: B010 - this process is the liar


def _one_fewer() -> None:
    """Tell one passive party of one common id fewer than the others."""

    def verdict(to: str, payload: bytes) -> bytes:
        count = read_verdict(payload[:8])
        if to != "passive-1" or not count:
            return payload
        return pack_verdict(count - 1) + payload[8:]

    def common(to: str, payload: bytes) -> bytes:
        return payload[:-PAIR_BYTES] if to == "passive-1" else payload

    _seal("verdict", verdict)
    _seal("common", common)


def _first(point: bytes | Callable[[bytes], bytes]) -> Change:
    """Another first point."""

    def changed(to: str, payload: bytes) -> bytes:
        made = point if isinstance(point, bytes) else point(payload[:32])
        return made + payload[32:]

    return changed


def _shorter(to: str, payload: bytes) -> bytes:
    return payload[:-PAIR_BYTES]


def _noise(to: str, payload: bytes) -> bytes:
    return os.urandom(len(payload))


CHANGES: dict[str, Callable[[], None]] = {
    "torsion_opening": partial(_seal, "open", _first(_with_torsion)),
    "identity_opening": partial(_seal, "open", _first(IDENTITY)),
    "short_query": partial(_seal, "query", _shorter),
    "other_query": partial(_of_another_bucket, "query"),
    "query_twice": partial(_twice, "query"),
    "other_common": partial(_seal, "common", _noise),
    "fewer_common": _one_fewer,
    "torsion_choice": partial(_seal, "choose", _first(_with_torsion)),
    "identity_choice": partial(_seal, "choose", _first(IDENTITY)),
    "odd_choice": partial(_seal, "choose", _first(NOT_CANONICAL)),
    "short_choice": partial(_seal, "choose", _shorter),
    "short_answer": partial(_seal, "answer", _shorter),
    "other_answer": partial(_of_another_bucket, "answer"),
    "answer_twice": partial(_twice, "answer"),
    "noise_answer": partial(_seal, "answer", _noise),
}
