"""Messages in which a party signs a statement that others keep: terms, end of a run, ledger heads.

It owns these shapes; it knows no behaviour. The envelope's signature shows who sent a message, the
signature inside shows a third party what was agreed.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Digest, Signature, Strict
from schemas.ids import MAX_PASSIVES, Parties, Round
from schemas.privacy import LedgerHead
from schemas.route import ACTIVE_ROLE, ANY_PARTY, PASSIVE_ROLE, Route

Signatures = Annotated[tuple[Signature, ...], Field(max_length=MAX_PASSIVES + 1)]


class Agreement(Strict):
    """Passive to active: the terms of this run, signed; nobody releases before all agree.

    `signature` is over the five digests together (parties/agreement.py), so that the active party
    can show it to the others.
    """

    kind: Literal["agreement"] = "agreement"
    route: ClassVar[Route] = Route(PASSIVE_ROLE, ACTIVE_ROLE, is_needed=True)
    manifest: Digest
    members: Digest  # names and verify keys of all parties and the coordinator
    toss: Digest  # all commitments to the public seed, and whether a kept alignment is used
    order: Digest  # keyed: the common ids in their order
    plan: Digest
    ledger: LedgerHead
    signature: Signature


class Agreed(Strict):
    """Active to every passive: everybody's signature under the same five digests."""

    kind: Literal["agreed"] = "agreed"
    route: ClassVar[Route] = Route(ACTIVE_ROLE, PASSIVE_ROLE, is_needed=True)
    ledger: LedgerHead  # the active party's
    signatures: Signatures  # of all parties, the active party's first


class Ending(Strict):
    """Passive to active: signs the end of its rounds and the residuals it was trained on."""

    kind: Literal["ending"] = "ending"
    route: ClassVar[Route] = Route(PASSIVE_ROLE, ACTIVE_ROLE, is_needed=True)
    rounds: Round
    residuals_digest: Digest
    signature: Signature


class Ended(Strict):
    """Active to every passive: the signatures under the same end; nobody completes without it."""

    kind: Literal["ended"] = "ended"
    route: ClassVar[Route] = Route(ACTIVE_ROLE, PASSIVE_ROLE, is_needed=True)
    parties: Parties
    signatures: Signatures


class LedgerNotice(Strict):
    """The head of a party's ledger after its last release, for the others to remember."""

    kind: Literal["ledger_head"] = "ledger_head"
    route: ClassVar[Route] = Route(ANY_PARTY, ANY_PARTY)
    head: LedgerHead
    signature: Signature  # the owner's, sent back to it later: nobody can invent a head


class LedgerWitness(Strict):
    """The newest ledger head of the receiver that a peer has seen, in any run, co-signed.

    Sent in answer to a notice, and before the first release of every later run: the owner then
    notices that its ledger was restored from an older copy.
    """

    kind: Literal["ledger_witness"] = "ledger_witness"
    route: ClassVar[Route] = Route(ANY_PARTY, ANY_PARTY)
    head: LedgerHead
    owner_signature: Signature
    signature: Signature  # the witness's


SignedMessage = Agreement | Agreed | Ending | Ended | LedgerNotice | LedgerWitness
