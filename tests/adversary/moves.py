"""Moves of an adversary against a party, as values that can be drawn, changed and sent again.

It owns the moves of coordinator and peers and how each becomes an input. It reads only what they
know: manifest, plan, the party's public state, and what the party has sent. The routes allow every
message; a move is tried in every phase, whether or not it is legal there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from hdpvfl_mq.machine import Input, OperatorRequest, Received
from hdpvfl_mq.privacy.plan import plan_silent
from hdpvfl_mq.wire.signing import sign
from parties.alignment import toss_commitment
from parties.completion import statement as end_statement
from parties.phases import (
    Accepted,
    Agreeing,
    Aligned,
    Joining,
    Starting,
    Terms,
    Training,
    setup_of,
)
from parties.rounds.scoring import ScoringPassive
from parties.witness import statement
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, release_id
from schemas.messages import (
    AlignBlock,
    AlignStart,
    Message,
    Pause,
    Residual,
    Resume,
    RoundPlan,
    RunClosed,
    RunOffer,
    ScoreShare,
    Welcome,
)
from schemas.privacy import LedgerHead
from schemas.records import Started
from schemas.signed import Agreed, Agreement, Ended, Ending, LedgerNotice, LedgerWitness
from schemas.tensor import Tensor
from tests.adversary.forged import Act, made, sealed
from tests.adversary.neighbours import signing_key
from tests.adversary.pair import Pair, Side
from tests.adversary.sessions import query

OTHERS = ("bank", "shop", "telco")
HEAD = LedgerHead(sequence=3, digest=bytes(range(32)))


Maker = Callable[[Act, Side, RunManifest], Message]


def given(pair: Pair, act: Act, offers: tuple[RunManifest, ...]) -> list[Any]:
    """Make one move, and hear what the neighbours say."""
    return pair.give(lambda side: sent(act, side, offers))


def sent(act: Act, side: Side, offers: tuple[RunManifest, ...]) -> Input:
    """The act as an input for one neighbour."""
    if act.sender == side.own.party:  # nobody can sign in its name
        act = replace(act, sender=next(p for p in OTHERS if p != act.sender))
    manifest = offers[act.flaw % len(offers)] if act.name == "offer" else offers[0]
    if act.name == "start":
        side.epoch += 1
        return Started(epoch=side.epoch, standing=side.book.standing())
    if act.name == "withdraw":
        return OperatorRequest(request="withdraw")
    if act.name == "query":  # only the active party may ask
        act = replace(act, sender=manifest.active_party)
    if act.name in ("agree", "end"):
        act = replace(act, sender=_counterpart(side, manifest, act.name))
    return Received(act.sender, MESSAGES[act.name](act, side, manifest))


def _counterpart(side: Side, manifest: RunManifest, name: str) -> str:
    """Who signs for this party: the active party, or a passive one that has not yet."""
    if side.own.role == "passive":
        return manifest.active_party
    signed = getattr(side.state, "agreements" if name == "agree" else "endings", {})
    missing = [p for p in manifest.passive_parties if p not in signed]
    return (missing or manifest.passive_parties)[0]


def _begin(act: Act, side: Side, manifest: RunManifest) -> Message:
    commitments = tuple(
        toss_commitment(side.own) if party == side.own.party else bytes([act.flaw % 7] * 32)
        for party in manifest.parties
    )
    if act.flaw % 3 == 2:
        commitments = commitments[1:]
    return AlignStart(is_kept=act.flaw % 2 == 0, commitments=commitments)


def _block(act: Act, side: Side, manifest: RunManifest) -> Message:
    stages = ("hello", "hellos", "points", "tags", "query", "answer", "toss", "reveal", "common")
    data = np.frombuffer(np.asarray(act.values).tobytes(), dtype=np.uint8)
    return AlignBlock(
        stage=stages[act.flaw % len(stages)],
        index=abs(act.shift),
        last=act.flaw % 2 == 0,
        meta=(act.flaw,),
        tensor=Tensor.of(data),
    )


def _plan(act: Act, side: Side, manifest: RunManifest) -> Message:
    setup, planned = setup_of(side.state), getattr(side.state, "planned", 0)
    digest = setup.plan.digest if setup and act.flaw % 4 != 3 else bytes(32)
    rounds = setup.plan.rounds if setup else 1
    first = max(0, planned + act.shift)
    last = (rounds, planned + 1, rounds + 1)[act.flaw % 3]
    return RoundPlan(first=first, last=max(0, last), plan_digest=digest)


def _values(act: Act, side: Side, manifest: RunManifest) -> Message:
    """A residual or a share: numbers up to the bound the receiver checks, or beyond."""
    is_share = side.own.role == "active"
    kind = "share" if is_share else "residual"
    round_ = max(0, getattr(side.state, "round", 0) + act.shift)
    setup = setup_of(side.state)
    name = release_id(manifest.run, act.sender, kind, round_)
    if setup is None:
        release = made(act, name, plan_silent(), 1)
    else:
        plan = setup.plan
        count = plan.share_count(round_) if is_share else plan.residual_count(round_)
        release = made(act, name, plan.noise_of("passive" if is_share else "active"), count)
        if is_share and plan.is_sealed and act.flaw not in (2, 9):
            release = sealed(release, side.own.sealing_key(act.sender, name))
    if not is_share:
        return Residual(round=round_, release=release)
    orders = getattr(side.state, "orders", ())
    count = getattr(side.state, "order_count", 0) + (act.flaw in range(4, 8))
    digest = orders[-1] if orders else bytes(32)
    return ScoreShare(round=round_, orders=count, orders_digest=digest, release=release)


def _agree(act: Act, side: Side, manifest: RunManifest) -> Message:
    """The signatures of everybody else under the party's own terms, or one that is spoilt."""
    terms = getattr(side.state, "terms", None)
    known = terms if isinstance(terms, Terms) else Terms(*[bytes(32)] * 5)
    if side.own.role == "passive":
        return Agreed(ledger=HEAD, signatures=_signed(act, manifest.parties, known.digest))
    stated = vars(known) if not act.flaw % 5 else {**vars(known), "order": bytes(32)}
    fields = {name: stated[name] for name in ("manifest", "members", "toss", "order", "plan")}
    (signature,) = _signed(act, (act.sender,), known.digest)
    return Agreement(**fields, ledger=HEAD, signature=signature)


def _end(act: Act, side: Side, manifest: RunManifest) -> Message:
    """The same for the end of the run."""
    state = side.state
    stated = end_statement(state) if isinstance(state, Training) else bytes(32)
    if side.own.role == "passive":
        parties = manifest.parties[act.flaw % 2 :]
        return Ended(parties=parties, signatures=_signed(act, parties, stated))
    (signature,) = _signed(act, (act.sender,), stated)
    return Ending(rounds=0, residuals_digest=bytes(32), signature=signature)


@lru_cache(maxsize=256)
def _signature(party: str, stated: bytes) -> bytes:
    return sign(signing_key(party), stated)


def _signed(act: Act, parties: tuple[str, ...], stated: bytes) -> tuple[bytes, ...]:
    made = [_signature(party, stated) for party in parties]
    if act.flaw % 5 == 4:
        made[-1] = bytes(64)
    return tuple(made)


def _resume(act: Act, side: Side, manifest: RunManifest) -> Message:
    absent = ((), (side.own.party,), OTHERS, tuple(p for p in OTHERS if p != side.own.party))
    round_ = max(0, getattr(side.state, "round", 0) + act.shift)
    return Resume(round=round_, absent=absent[act.flaw % 4])


def _head(act: Act, side: Side, manifest: RunManifest) -> Message:
    key = signing_key(COORDINATOR if act.flaw % 2 else act.sender)
    return LedgerNotice(head=HEAD, signature=sign(key, statement(act.sender, HEAD)))


def _witness(act: Act, side: Side, manifest: RunManifest) -> Message:
    """The party's own last head, which its notice has signed; or one it never had."""
    head = side.state.standing.head if hasattr(side.state, "standing") else HEAD
    head = HEAD if act.flaw % 2 else head
    stated = statement(side.own.party, head)
    owner = signing_key(side.own.party if head != HEAD else act.sender)
    return LedgerWitness(
        head=head,
        owner_signature=sign(owner, stated),
        signature=sign(signing_key(act.sender), stated),
    )


MESSAGES: Mapping[str, Maker] = {
    "offer": lambda act, side, manifest: RunOffer(manifest=manifest),
    "welcome": lambda act, side, manifest: Welcome(epoch=1, waiting_for=OTHERS[: act.flaw % 3]),
    "begin": _begin,
    "block": _block,
    "agree": _agree,
    "plan": _plan,
    "end": _end,
    "values": _values,
    "query": lambda act, side, manifest: query(act, side.state),
    "pause": lambda act, side, manifest: Pause(waiting_for=OTHERS[: act.flaw % 3]),
    "resume": _resume,
    "closed": lambda act, side, manifest: RunClosed(outcome="completed", reason="over"),
    "head": _head,
    "witness": _witness,
}
ACTS = ("start", "withdraw", *MESSAGES)


def in_turn(pair: Pair, values: np.ndarray) -> Act:
    """What an honest peer would send next, with these numbers."""
    state = pair.view
    if isinstance(state, Training) and state.is_done and not state.has_reported:
        return Act("end") if pair.moves % 4 else Act("closed")
    waits = isinstance(state, Training) and not state.is_done
    if isinstance(state, Aligned) or (waits and state.round >= state.planned):
        return Act("plan")
    if waits and isinstance(state.rounds, ScoringPassive):
        return Act("query", values=values)
    if waits:
        return Act("values", sender=_speaker(pair), values=values)
    return Act(_NEXT.get(type(state), "closed"))


_NEXT = {Starting: "start", Joining: "offer", Accepted: "begin", Agreeing: "agree"}


def _speaker(pair: Pair) -> str:
    """The party whose numbers the current round waits for."""
    manifest = pair.view.manifest
    if pair.victim != manifest.active_party:
        return manifest.active_party
    shares = getattr(pair.view.rounds, "shares", {})
    missing = [party for party in manifest.passive_parties if party not in shares]
    return (missing or ["shop"])[0]
