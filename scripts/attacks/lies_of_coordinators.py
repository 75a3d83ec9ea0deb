"""Lies of the coordinator: orders, offers and ends that no honest one sends."""

from __future__ import annotations

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.codec import encode_body
from schemas.config import RunManifest
from schemas.federation import RunNews, RunPhase, RunProposal
from schemas.messages import AlignStart, RoundPlan, RunClosed, RunOffer
from scripts.attacks.voice import Lie, send_signed


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
    send_signed(node, effect.to, "align_start", pack(named))
    return ()


def opened_unasked(node: Node, effect: Send) -> tuple[Effect, ...]:
    """The registrar says that a run is agreed and open as soon as it is proposed."""
    if not isinstance(effect.message, RunProposal):
        return (effect,)
    run = effect.message.manifest.run
    phases: tuple[RunPhase, ...] = ("proposed", "open")
    told = (RunNews(run=run, phase=each, waiting_for=(), reason="") for each in phases)
    return (effect, *(Send(effect.to, each) for each in told))


LIES: dict[str, Lie] = {
    each.__name__: each
    for each in (
        early_end,
        split_manifest,
        more_rounds,
        other_orders,
        weaker_method,
        opened_unasked,
    )
}
