"""Performs the effects of a step: writes envelopes, and collects what the commit must do.

It owns what an effect means for the node; it commits and sends nothing, and knows no role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nacl.signing import VerifyKey

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.chained import Chained
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.ports import Contact, Identity, RecordStore
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from schemas.federation import Forget, Meet, SignWith
from schemas.ids import PartyId
from schemas.messages import Releasing
from schemas.records import (
    Arm,
    Book,
    Charge,
    CheckLedger,
    EnvelopeSent,
    Finish,
    ReadLedger,
    RecordedEffect,
    Refused,
    RememberHead,
    Reserve,
)

# A header names all receivers of its envelope and goes to each of them. Bytes and time of one that
# goes to all parties would grow with the square of their number.
RECEIVERS_MAX = 32


class Performing(Chained):
    """A journal and a mailbox, and what the effects of steps do to them."""

    def __init__(
        self, identity: Identity, contacts: Mapping[PartyId, Contact], journal: RecordStore
    ) -> None:
        super().__init__(journal)
        self.identity = identity
        self.outcome: str | None = None
        self.mailbox = Mailbox(identity, contacts)
        self.armed: dict[str, Arm] = {}
        self.is_ledger_due = False
        self._is_charge_due = False

    def _perform(self, effect: Effect, parent: bytes) -> RecordedEffect:
        """Collect what the effect asks for after the commit; returns the effect as recorded."""
        match effect:
            case Send(to=to, message=message):
                frames = self.mailbox.write(to, message, parent, self._stamp())
                if isinstance(message, Releasing):
                    self._uncommitted.releases.append(message.release)
                    if is_in_parts(frames):
                        data = message.release.tensor.data
                        self._uncommitted.parts.append((PartList.of_frames(frames), data))
                self._uncommitted.send.append(frames)
                return EnvelopeSent(frames=frames)
            case Arm(timer=timer):
                self._uncommitted.arm.append(effect)
                self.armed[timer] = effect
            case Reserve():
                self._uncommitted.reservations.append(effect)
            case Book(release=release):
                self._uncommitted.releases.append(release)
            case Charge():
                self._uncommitted.charges.append(effect)
                self._is_charge_due = True  # kept until `Charged` is recorded
            case ReadLedger() | RememberHead() | CheckLedger():
                self._uncommitted.ledger_orders.append(effect)
                # Set until `LedgerRead` is recorded: a crash may come between the two steps.
                self.is_ledger_due |= isinstance(effect, ReadLedger)
            case Meet() | Forget() | SignWith():
                self._acquaint(effect)
            case Finish(outcome=outcome):
                self.outcome = outcome
            case Refused():
                pass  # an input that was put aside and is not a legal move
        return effect

    def _acquaint(self, effect: Meet | Forget | SignWith) -> None:
        """Change whose envelopes are accepted, or with which key this node signs."""
        match effect:
            case Meet(party=party, role=role, verify_key=key, speaks=version):
                self.mailbox.meet(party, Contact(role, VerifyKey(key), version))
            case Forget(party=party):
                self.mailbox.forget(party, self.steps)
            case SignWith(verify_key=key):
                self.mailbox.sign_with(key)


def spread(effect: Effect) -> tuple[Effect, ...]:
    """Several envelopes in place of one with very many receivers.

    A release stays one envelope: it is the same bytes for all, and large beside its header.
    """
    if not isinstance(effect, Send) or len(effect.to) <= RECEIVERS_MAX:
        return (effect,)
    if isinstance(effect.message, Releasing):
        return (effect,)
    firsts = range(0, len(effect.to), RECEIVERS_MAX)
    return tuple(replace(effect, to=effect.to[k : k + RECEIVERS_MAX]) for k in firsts)
