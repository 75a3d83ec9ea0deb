"""A malicious member process: `python -m scripts.attacks.liar LIE settings.toml`.

It owns the lies; the rest is the production process, with the liar's real keys. A lie takes an
effect of the honest role and returns the effects to send instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node import mailbox
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.psi.ot_oprf import OtAsker
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import Frames, encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from parties import alignment
from schemas.config import RunManifest
from schemas.envelope import MAX_ARRAY_BYTES, MAX_BLOCK_BYTES, Header
from schemas.messages import (
    AlignBlock,
    AlignStart,
    Message,
    Residual,
    RoundPlan,
    RunClosed,
    RunOffer,
    ScoreShare,
)
from schemas.privacy import Release
from schemas.tensor import Tensor

Lie = Callable[[Node, Send], tuple[Effect, ...]]
# A flood of blocks, or of shares: ten times the limits, or what the short form says.
FLOOD_MIB = int(os.environ.get("HDPVFL_ATTACK_MIB", "640"))


def _with(message: Message, **changes: Any) -> Message:
    changed: Message = type(message)(**{**dict(message), **changes})
    return changed


def _release(release: Release, values: Any) -> Release:
    return Release(**{**dict(release), "tensor": Tensor.of(values)})


def not_a_number(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send a share of NaN before the honest share."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    count = len(share.release.tensor.array())
    body, _ = encode_body(_with(share, release=_release(share.release, np.zeros(count))))
    _send_signed(node, effect.to, share.kind, body, (np.full(count, np.nan).tobytes(),))
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
    _say(node, effect.to, _with(share, round=share.round + 1))
    return (effect,)


def one_story_each(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The active party sends each passive party a different residual."""
    if not isinstance(effect.message, Residual):
        return (effect,)
    first, *others = effect.to
    told = effect.message
    shifted = _release(told.release, told.release.tensor.array() + 1)
    _say(node, tuple(others), _with(told, release=shifted))
    return (Send((first,), told),)


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
    body, arrays = encode_body(_with(share, release=_release(share.release, values)))
    assert sum(map(len, arrays)) == MAX_ARRAY_BYTES, "sent whole: nobody asks for parts"
    for _ in range(FLOOD_MIB * 2**20 // MAX_ARRAY_BYTES):
        _send_signed(node, effect.to, share.kind, body, arrays)
    return (effect,)


def escape_codes(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Send a refusal with escape codes that rewrite its reader's terminal."""
    if effect.message.kind != "run_accept":
        return (effect,)
    body = pack({"kind": "run_refuse", "rule": "\x1b[2J\x1b]0;owned\x07all is well"})
    _send_signed(node, effect.to, "run_refuse", body)
    return (effect,)


def early_end(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator says that the run is complete before any round has run."""
    if not isinstance(effect.message, RoundPlan):
        return (effect,)
    return (Send(effect.to, RunClosed(outcome="completed", reason="")),)


def split_manifest(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator offers one party a different seed, hence a different order of rows."""
    if not isinstance(effect.message, RunOffer):
        return (effect,)
    first, *others = effect.to
    manifest = effect.message.manifest
    another = RunManifest(**{**dict(manifest), "seed": manifest.seed + 1})
    return (Send((first,), effect.message), Send(tuple(others), RunOffer(manifest=another)))


def more_rounds(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator allows more rounds than the plan has."""
    if not isinstance(effect.message, RoundPlan):
        return (effect,)
    plan = effect.message
    wrong = RoundPlan(first=plan.first, last=plan.last + 1000, plan_digest=plan.plan_digest)
    return (Send(effect.to, wrong), effect)


def other_orders(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator allows the active party fewer rounds than the others."""
    if not isinstance(effect.message, RoundPlan):
        return (effect,)
    first, *others = effect.to
    plan = effect.message
    fewer = RoundPlan(first=plan.first, last=plan.last - 1, plan_digest=plan.plan_digest)
    return (Send((first,), fewer), Send(tuple(others), plan))


def weaker_method(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator adds its own method of entity resolution to the start message."""
    if not isinstance(effect.message, AlignStart):
        return (effect,)
    body, _ = encode_body(effect.message)
    named = {**unpack(body, max_bytes=2**20), "method": "ecdh"}
    _send_signed(node, effect.to, "align_start", pack(named))
    return ()


def shifted_query(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Change no message; `_shift_queries` shifts the query of entity resolution."""
    return (effect,)


def ground_seed(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Change no message; `_grind` commits to another nonce than is shown."""
    return (effect,)


def honest(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Change no message; `_lying_delivery` makes the header lie."""
    return (effect,)


LIES: dict[str, Lie] = {
    each.__name__: each
    for each in (
        not_a_number,
        not_a_number_instead,
        other_orders,
        weaker_method,
        shifted_query,
        ground_seed,
        another_round,
        one_story_each,
        blocks_too_early,
        gap,
        escape_codes,
        early_end,
        split_manifest,
        more_rounds,
    )
}
LIES |= {"false_seen": honest, "false_ack": honest}


def _say(node: Node, to: tuple[str, ...], message: Message) -> None:
    """Sign and send a message without an entry in the liar's own ledger."""
    body, arrays = encode_body(message)
    _send_signed(node, to, message.kind, body, arrays)


def _send_signed(
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


def _tamper(node: Node, lie: Lie) -> None:
    """Pass the effects of a node's role through a lie."""
    honestly = node.role.step

    def step(state: Any, given: Any) -> Any:
        after, effects = honestly(state, given)
        told: list[Effect] = []
        for effect in effects:
            told += lie(node, effect) if isinstance(effect, Send) else [effect]
        return after, tuple(told)

    setattr(node.role, "step", step)  # noqa: B010 - the honest class has no such attribute


def _lying_delivery(name: str) -> None:
    honestly = Mailbox._delivery

    def lying(self: Mailbox, party: str, sequence: int) -> Any:
        delivery = honestly(self, party, sequence)
        change: dict[str, Any] = (
            {"seen": os.urandom(32)} if name == "false_seen" else {"ack": delivery.ack + 7}
        )
        return type(delivery)(**{**dict(delivery), **change}) if delivery.ack else delivery

    Mailbox._delivery = lying  # type: ignore[method-assign]  # this process is the liar


def _shift_queries() -> None:
    """Flip a bit in twelve columns of every query, to learn a peer's secret from its answers."""
    honestly = OtAsker.prepare

    def shifted(self: OtAsker, *given: Any) -> Any:
        query = honestly(self, *given)
        codewords = query.codewords.copy()
        codewords[:12, -1] ^= 1
        return replace(query, codewords=codewords)

    setattr(OtAsker, "prepare", shifted)  # noqa: B010 - this process is the liar


def _never_give_up() -> None:
    """Stay although peers do not acknowledge the flood; an honest party would withdraw."""
    setattr(mailbox, "UNACKNOWLEDGED_BYTES_MAX", 2**40)  # noqa: B010 - this process is the liar


def _grind() -> None:
    """Commit to another share of the public seed than is shown later."""
    honestly = vars(alignment)["commit"]  # fails if it has moved: no lie would be told

    def other(nonce: bytes, party: str) -> Any:
        return honestly(bytes(32), party)

    setattr(alignment, "commit", other)  # noqa: B010 - this process is the liar


def main(name: str, settings: Path) -> int:
    """Run the production process with one lie in it."""
    if name.startswith("false_"):
        _lying_delivery(name)
    if name == "shifted_query":
        _shift_queries()
    if name == "ground_seed":
        _grind()
    if name in {"blocks_too_early", "gap"}:
        _never_give_up()
    opened = Node.open

    def open_lying(self: Node) -> int:
        steps = opened(self)
        _tamper(self, LIES[name])
        return steps

    Node.open = open_lying  # type: ignore[method-assign]  # this process is the liar
    if settings.stem == "coordinator":
        from broker.__main__ import main as broker_main  # noqa: PLC0415 - after the changes above

        return broker_main(settings)
    from parties.__main__ import main as party_main  # noqa: PLC0415 - after the changes above

    return party_main(settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
