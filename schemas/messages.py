"""One class per message, one tagged union, and the table of who may send what to whom.

It owns the vocabulary of the protocol; it knows no behaviour. Nothing here can carry a number
computed from private rows except inside a `Release`, which only the mechanism makes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Closed, Count, Digest, Signature, Text
from schemas.config import RunManifest
from schemas.envelope import MAX_ARRAY_BYTES, MAX_BLOCK_BYTES
from schemas.federation import FederationMessage
from schemas.ids import MAX_PASSIVES, Epoch, Parties, PartyId, RoleName, Round
from schemas.privacy import LedgerHead, Release
from schemas.tensor import Tensor

Signatures = Annotated[tuple[Signature, ...], Field(max_length=MAX_PASSIVES + 1)]
# What each means, in words: hdpvfl_mq/endings.py.
WithdrawReason = Literal[
    "operator",
    "budget",
    "rows",
    "proof",
    "data",
    "manifest",
    "members",
    "toss",
    "order",
    "plan",
    "signature",
    "ledger",
    "orders",
    "residuals",
    "end",
]


class Ack(Closed):
    """Nothing to say but the acknowledgements in the header."""

    kind: Literal["ack"] = "ack"


class Hello(Closed):
    """A process of this party has started (again); binds its connection to its name."""

    kind: Literal["hello"] = "hello"
    epoch: Epoch
    seed_commitment: Digest
    toss_commitment: Digest  # to this party's share in the public seed of entity resolution
    dataset_fingerprint: Digest  # keyed by the secret seed: comparable by its owner only
    numeric_profile: Text
    ledger: LedgerHead


class Welcome(Closed):
    """The coordinator has recorded the hello of that epoch."""

    kind: Literal["welcome"] = "welcome"
    epoch: Epoch
    waiting_for: Parties


class RunOffer(Closed):
    """The whole run, to be checked by every party against its own policy and ledger."""

    kind: Literal["run_offer"] = "run_offer"
    manifest: RunManifest


class RunAccept(Closed):
    """The party takes part; set size and column count are public (docs/threat-model.md)."""

    kind: Literal["run_accept"] = "run_accept"
    manifest_digest: Digest
    id_profile_digest: Digest
    set_size: Count
    columns: Count
    kept_alignment: Digest | None = None  # name of one from an earlier run, if it may be used again


class RunRefuse(Closed):
    """The party does not take part, and says which of its rules forbids it."""

    kind: Literal["run_refuse"] = "run_refuse"
    rule: Text


class AlignStart(Closed):
    """All have accepted: find the common entities."""

    kind: Literal["align_start"] = "align_start"
    is_kept: bool  # all have named the same alignment of an earlier run: nothing is exchanged
    # The toss commitments of all hellos, the active party's first.
    commitments: Annotated[tuple[Digest, ...], Field(max_length=MAX_PASSIVES + 1)]


class AlignBlock(Closed):
    """One block of entity resolution; its meaning belongs to hdpvfl_mq/psi."""

    kind: Literal["align_block"] = "align_block"
    stage: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]
    index: Count
    last: bool
    meta: Annotated[tuple[Count, ...], Field(max_length=64)]
    tensor: Tensor


class Aligned(Closed):
    """The party knows its common rows; equal digests mean equal order and plan everywhere."""

    kind: Literal["aligned"] = "aligned"
    rows: Count
    rounds: Round
    order_digest: Digest
    plan_digest: Digest


class RoundPlan(Closed):
    """Rounds first..last-1 may run without asking again."""

    kind: Literal["round_plan"] = "round_plan"
    first: Round
    last: Round
    plan_digest: Digest


class Agreement(Closed):
    """Passive to active: what this run rests on, signed; nobody releases before all agree.

    `signature` is over the five digests together (parties/agreement.py), so that the active party
    can show it to the others.
    """

    kind: Literal["agreement"] = "agreement"
    manifest: Digest
    members: Digest  # names and verify keys of all parties and the coordinator
    toss: Digest  # all commitments to the public seed, and whether a kept alignment is used
    order: Digest  # keyed: the common ids in their order
    plan: Digest
    ledger: LedgerHead
    signature: Signature


class Agreed(Closed):
    """Active to every passive: everybody's signature under the same five digests."""

    kind: Literal["agreed"] = "agreed"
    ledger: LedgerHead  # the active party's
    signatures: Signatures  # of all parties, the active party's first


class ScoreShare(Closed):
    """Passive to active: noised inner products of the round's batch."""

    kind: Literal["score_share"] = "score_share"
    round: Round
    # What the coordinator has ordered so far, as this party heard it: how much, and its hash.
    orders: Count
    orders_digest: Digest
    release: Release


class Residual(Closed):
    """Active to every passive: noised loss derivatives of the round's batch."""

    kind: Literal["residual"] = "residual"
    round: Round
    release: Release


class RoundReport(Closed):
    """A party has finished that many rounds; `last` by the schedule or by the public stop rule."""

    kind: Literal["round_report"] = "round_report"
    rounds_done: Round
    last: bool
    # The residuals this party has sent or received: how many, and their keyed hash.
    residuals: Count
    residuals_digest: Digest


class Ending(Closed):
    """Passive to active: its rounds are over, and which residuals it has learnt from, signed."""

    kind: Literal["ending"] = "ending"
    rounds: Round
    residuals_digest: Digest
    signature: Signature


class Ended(Closed):
    """Active to every passive: who has signed the same end; nobody completes without it."""

    kind: Literal["ended"] = "ended"
    parties: Parties
    signatures: Signatures


class Pause(Closed):
    """The coordinator waits for somebody, and says for whom."""

    kind: Literal["pause"] = "pause"
    waiting_for: Parties


class Resume(Closed):
    """Go on; `absent` are left out from now on, who was and is not named is back at `round`."""

    kind: Literal["resume"] = "resume"
    round: Round
    absent: Parties


class Withdraw(Closed):
    """A party leaves the run, which ends it for all; what it has spent stays spent.

    Told to the coordinator and to every peer, so that no coordinator can keep it to itself.
    """

    kind: Literal["withdraw"] = "withdraw"
    reason: WithdrawReason
    about: PartyId | None = None  # whom the reason speaks of


class RunClosed(Closed):
    """The run is over for everybody."""

    kind: Literal["run_closed"] = "run_closed"
    outcome: Literal["completed", "refused", "withdrawn", "deadline", "mismatch"]
    reason: Text


class LedgerNotice(Closed):
    """Where a party's ledger stands after its last release, for the others to remember."""

    kind: Literal["ledger_head"] = "ledger_head"
    head: LedgerHead
    signature: Signature  # the owner's, which it is shown again: nobody can make up a head


class LedgerWitness(Closed):
    """The newest ledger head a peer has seen of the receiver, in any run, co-signed.

    Sent back for a notice, and before the first release of every later run: a ledger that was
    restored from an older copy is then noticed by its owner.
    """

    kind: Literal["ledger_witness"] = "ledger_witness"
    head: LedgerHead
    owner_signature: Signature
    signature: Signature  # the witness's


Message = (
    Ack
    | Hello
    | Welcome
    | RunOffer
    | RunAccept
    | RunRefuse
    | AlignStart
    | AlignBlock
    | Aligned
    | Agreement
    | Agreed
    | RoundPlan
    | ScoreShare
    | Residual
    | RoundReport
    | Ending
    | Ended
    | Pause
    | Resume
    | Withdraw
    | RunClosed
    | LedgerNotice
    | LedgerWitness
    | FederationMessage
)
Releasing = ScoreShare | Residual  # the only messages that carry numbers about rows
MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])

GREETINGS = frozenset({"hello", "member_hello"})  # bind a connection; first on every new one

_PARTY: frozenset[RoleName] = frozenset({"active", "passive"})
_ALL: frozenset[RoleName] = frozenset({"active", "passive", "coordinator"})
_COORDINATOR: frozenset[RoleName] = frozenset({"coordinator"})
_ACTIVE: frozenset[RoleName] = frozenset({"active"})
_PASSIVE: frozenset[RoleName] = frozenset({"passive"})

# kind -> bytes of its array frame; every other kind has none.
ARRAY_BYTES: dict[str, int] = {
    "align_block": MAX_BLOCK_BYTES,
    "score_share": MAX_ARRAY_BYTES,
    "residual": MAX_ARRAY_BYTES,
}

# kind -> (who may send it, who may receive it); everything else is refused at the door.
ROUTES: dict[str, tuple[frozenset[RoleName], frozenset[RoleName]]] = {
    "ack": (_ALL, _ALL),
    "hello": (_PARTY, _COORDINATOR),
    "welcome": (_COORDINATOR, _PARTY),
    "run_offer": (_COORDINATOR, _PARTY),
    "run_accept": (_PARTY, _COORDINATOR),
    "run_refuse": (_PARTY, _COORDINATOR),
    "align_start": (_COORDINATOR, _PARTY),
    "align_block": (_PARTY, _PARTY),
    "aligned": (_PARTY, _COORDINATOR),
    "agreement": (_PASSIVE, _ACTIVE),
    "agreed": (_ACTIVE, _PASSIVE),
    "round_plan": (_COORDINATOR, _PARTY),
    "score_share": (_PASSIVE, _ACTIVE),
    "residual": (_ACTIVE, _PASSIVE),
    "round_report": (_PARTY, _COORDINATOR),
    "ending": (_PASSIVE, _ACTIVE),
    "ended": (_ACTIVE, _PASSIVE),
    "pause": (_COORDINATOR, _PARTY),
    "resume": (_COORDINATOR, _PARTY),
    "withdraw": (_PARTY, _ALL),
    "run_closed": (_COORDINATOR, _PARTY),
    "ledger_head": (_PARTY, _PARTY),
    "ledger_witness": (_PARTY, _PARTY),
    # A federation's own stream.
    "member_hello": (_PARTY, _COORDINATOR),
    "run_proposal": (_ALL, _ALL),
    "run_answer": (_PARTY, _COORDINATOR),
    "run_stop": (_PARTY, _COORDINATOR),
    "run_news": (_COORDINATOR, _PARTY),
    "roster": (_COORDINATOR, _PARTY),
    "pair": (_ALL, _ALL),
}
