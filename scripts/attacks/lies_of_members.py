"""Lies of a party about rounds, and floods: what a role sends is changed on its way out."""

from __future__ import annotations

import os

import numpy as np

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack
from hdpvfl_mq.wire.codec import encode_body
from hdpvfl_mq.wire.parts import PART_BYTES, PartList, Sizes, part_digest
from schemas.envelope import MAX_ARRAY_BYTES, MAX_BLOCK_BYTES
from schemas.federation import MemberHello
from schemas.ids import MAX_PASSIVES
from schemas.messages import AlignBlock, Residual, ScoreShare, Waiting
from schemas.scoring import ScoreQuery
from schemas.signed import Ended
from schemas.tensor import Tensor
from scripts.attacks.voice import Lie, say, send_signed, with_fields, with_values

# A flood of blocks, or of shares: ten times the limits, or what the short form says.
FLOOD_MIB = int(os.environ.get("HDPVFL_ATTACK_MIB", "640"))


def not_a_number(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send a share of NaN before the honest share."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    count = len(share.release.tensor.array())
    body, _ = encode_body(with_fields(share, release=with_values(share.release, np.zeros(count))))
    send_signed(node, effect.to, share.kind, body, (np.full(count, np.nan).tobytes(),))
    return (effect,)


def not_a_number_instead(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send a share of NaN instead of the honest share."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    not_a_number(node, effect)
    return ()


def another_round(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send a share for another round before the honest share."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    say(node, effect.to, with_fields(share, round=share.round + 1))
    return (effect,)


def numbered_ack(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Give an acknowledgement a number in the stream, so that readers of it miss an envelope."""
    if isinstance(effect.message, ScoreShare):
        send_signed(node, effect.to, "ack", pack({"kind": "ack"}))
    return (effect,)


def no_message(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send bytes that are not a message before the honest share."""
    if isinstance(effect.message, ScoreShare):
        send_signed(node, effect.to, effect.message.kind, b"\xc1\xff")
    return (effect,)


def one_story_each(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The active party sends each passive party a different residual."""
    if not isinstance(effect.message, Residual):
        return (effect,)
    first, *others = effect.to
    told = effect.message
    shifted = with_values(told.release, told.release.tensor.array() + 1)
    say(node, tuple(others), with_fields(told, release=shifted))
    return (Send((first,), told),)


def escape_codes(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send a refusal with escape codes that rewrite its reader's terminal."""
    if effect.message.kind != "run_accept":
        return (effect,)
    body = pack({"kind": "run_refuse", "rule": "\x1b[2J\x1b]0;owned\x07all is well"})
    send_signed(node, effect.to, "run_refuse", body)
    return (effect,)


def blocks_too_early(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send blocks of the largest size before entity resolution has begun."""
    if effect.message.kind != "run_accept":
        return (effect,)
    peers = tuple(p for p, c in node.mailbox._contacts.items() if c.role == "active")
    block = Tensor.of(np.zeros(MAX_BLOCK_BYTES, dtype=np.uint8))
    flood = tuple(
        Send(peers, AlignBlock(stage="query", index=i, last=False, meta=(), tensor=block))
        for i in range(FLOOD_MIB * 2**20 // MAX_BLOCK_BYTES)
    )
    return (*flood, effect)


def endless_notices(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Tell the coordinator without end for whom this party waits: legal at any time."""
    if effect.message.kind != "aligned":
        return (effect,)
    names = tuple(f"{'x' * 28}{number:03d}" for number in range(MAX_PASSIVES + 1))
    for _ in range(FLOOD_MIB * 2**20 // sum(map(len, names))):
        say(node, effect.to, Waiting(waiting_for=names))
    return (effect,)


def gap(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Skip one sequence number, then send as many messages after it as fit."""
    if effect.message.kind != "score_share":
        return (effect,)
    for party in effect.to:
        node.mailbox._outbox[party].number()
    share = effect.message
    size = MAX_ARRAY_BYTES // 8
    assert isinstance(share, ScoreShare)
    values = np.zeros(size, dtype=np.int64) + 2**40
    body, arrays = encode_body(with_fields(share, release=with_values(share.release, values)))
    assert sum(map(len, arrays)) == MAX_ARRAY_BYTES, "sent whole: nobody asks for parts"
    for _ in range(FLOOD_MIB * 2**20 // MAX_ARRAY_BYTES):
        send_signed(node, effect.to, share.kind, body, arrays)
    return (effect,)


def _listed(data: bytes, part_bytes: int) -> PartList:
    cut = [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)]
    return PartList(Sizes(bytes=len(data), part_bytes=part_bytes), tuple(map(part_digest, cut)))


def no_parts(node: Node, effect: Send) -> tuple[Effect, ...]:
    """List a share in parts, speak on, and serve no part of it."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    body, _ = encode_body(share)
    data = bytes(share.release.tensor.data)
    listed = _listed(data, PART_BYTES)
    send_signed(node, effect.to, share.kind, body, listed.frames)
    node._uncommitted.parts.append((listed, data))
    return ()


def part_sizes(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Serve a last part that is longer than listed: to be stored, and found damaged later."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    body, _ = encode_body(share)
    data = bytes(share.release.tensor.data)
    longer = data + bytes(64)
    served = _listed(longer, PART_BYTES)
    told = PartList(Sizes(bytes=len(data), part_bytes=PART_BYTES), served.digests)
    send_signed(node, effect.to, share.kind, body, told.frames)
    node._uncommitted.parts.append((served, longer))
    return ()


def false_end(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The active party forwards signatures under the end that nobody made."""
    if not isinstance(effect.message, Ended):
        return (effect,)
    told = effect.message
    forged = tuple(bytes(64) for _ in told.signatures)
    return (Send(effect.to, Ended(parties=told.parties, signatures=forged)),)


def overstated(node: Node, effect: Send) -> tuple[Effect, ...]:
    """A member says that it speaks a version of the protocol that does not exist."""
    if not isinstance(effect.message, MemberHello):
        return (effect,)
    hello = MemberHello(epoch=effect.message.epoch, speaks=2**16)
    return (Send(effect.to, hello),)


def poison_query(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Ask for scores under a number that no release can have, before the honest query."""
    if not isinstance(effect.message, ScoreQuery):
        return (effect,)
    say(node, effect.to, with_fields(effect.message, number=10**12))
    return (effect,)


LIES: dict[str, Lie] = {
    each.__name__: each
    for each in (
        not_a_number,
        not_a_number_instead,
        another_round,
        numbered_ack,
        no_message,
        one_story_each,
        escape_codes,
        blocks_too_early,
        endless_notices,
        gap,
        no_parts,
        part_sizes,
        false_end,
        overstated,
        poison_query,
    )
}
