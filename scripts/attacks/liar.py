"""A process of the federation that lies: `python -m scripts.attacks.liar LIE settings.toml`.

It owns the lies; the rest of the process is that of production, with the liar's real keys. A lie
takes an effect of the honest role and says what is sent in its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack
from hdpvfl_mq.wire.codec import Frames, encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.config import RunManifest
from schemas.envelope import MAX_ARRAY_BYTES, MAX_BLOCK_BYTES, Header
from schemas.messages import (
    AlignBlock,
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
FLOOD = 80  # blocks of the largest size that are allowed


def _with(message: Message, **changes: Any) -> Message:
    changed: Message = type(message)(**{**dict(message), **changes})
    return changed


def _release(release: Release, values: Any) -> Release:
    return Release(**{**dict(release), "tensor": Tensor.of(values)})


def not_a_number(node: Node, effect: Send) -> tuple[Effect, ...]:
    """NaN for a share, before the honest one."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    wrong = _release(share.release, np.full(len(share.release.tensor.array()), np.nan))
    _say(node, effect.to, _with(share, release=wrong))
    return (effect,)


def another_round(node: Node, effect: Send) -> tuple[Effect, ...]:
    """A share for a round that is not its turn, before the honest one."""
    if not isinstance(effect.message, ScoreShare):
        return (effect,)
    share = effect.message
    _say(node, effect.to, _with(share, round=share.round + 1))
    return (effect,)


def one_story_each(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The active party tells each passive party another residual."""
    if not isinstance(effect.message, Residual):
        return (effect,)
    first, *others = effect.to
    told = effect.message
    shifted = _release(told.release, told.release.tensor.array() + 1)
    _say(node, tuple(others), _with(told, release=shifted))
    return (Send((first,), told),)


def blocks_too_early(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The largest blocks there are, before entity resolution has begun."""
    if effect.message.kind != "run_accept":
        return (effect,)
    peers = tuple(p for p, c in node.mailbox._contacts.items() if c.role == "active")
    block = Tensor.of(np.zeros(MAX_BLOCK_BYTES, dtype=np.uint8))
    flood = tuple(
        Send(peers, AlignBlock(stage="query", index=i, last=False, meta=(), tensor=block))
        for i in range(FLOOD)
    )
    return (*flood, effect)


def gap(node: Node, effect: Send) -> tuple[Effect, ...]:
    """One number left out, then everything that fits after it."""
    if effect.message.kind != "score_share":
        return (effect,)
    for party in effect.to:
        node.mailbox._outbox[party].number()
    share = effect.message
    size = MAX_ARRAY_BYTES // 8
    assert isinstance(share, ScoreShare)
    large = _release(share.release, np.zeros(size, dtype=np.int64) + 2**40)
    for _ in range(12):
        _say(node, effect.to, _with(share, release=large))
    return (effect,)


def escape_codes(node: Node, effect: Send) -> tuple[Effect, ...]:
    """A refusal that rewrites the terminal of whoever reads it."""
    if effect.message.kind != "run_accept":
        return (effect,)
    body = pack({"kind": "run_refuse", "rule": "\x1b[2J\x1b]0;owned\x07all is well"})
    _send_signed(node, effect.to, "run_refuse", body)
    return (effect,)


def early_end(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator says that the run is complete before a round has run."""
    if not isinstance(effect.message, RoundPlan):
        return (effect,)
    return (Send(effect.to, RunClosed(outcome="completed", reason="")),)


def split_manifest(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The coordinator offers one party another seed, hence another order of rows."""
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


def honest(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Every message as it is; the header lies, see `_lying_delivery`."""
    return (effect,)


LIES: dict[str, Lie] = {
    each.__name__: each
    for each in (
        not_a_number,
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
    """Sign and send a message that the liar's own ledger does not hear of."""
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
            version=1,
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
    """Let the effects of a node's role pass through a lie."""
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


def main(name: str, settings: Path) -> int:
    """Run the process of production, with one lie in it."""
    if name.startswith("false_"):
        _lying_delivery(name)
    opened = Node.open

    def open_lying(self: Node) -> int:
        steps = opened(self)
        _tamper(self, LIES[name])
        return steps

    Node.open = open_lying  # type: ignore[method-assign]  # this process is the liar
    if settings.stem == "coordinator":
        from broker.__main__ import main as broker_main  # noqa: PLC0415 - after the changes above

        return broker_main(settings)
    from parties.__main__ import main as party_main  # noqa: PLC0415

    return party_main(settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
