"""One class per message, one tagged union, and the table of who may send what to whom.

It owns the messages of the protocol; it knows no behaviour. A number computed from private rows can
only travel inside a `Release`, which only the mechanism makes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Closed, Count, Digest, Signature, Text
from schemas.config import RunManifest
from schemas.envelope import MAX_ARRAY_BYTES, MAX_BLOCK_BYTES, MAX_PART_BYTES, MAX_PARTS
from schemas.federation import FederationMessage
from schemas.ids import MAX_PASSIVES, Epoch, Parties, PartyId, RoleName, Round
from schemas.privacy import LedgerHead, Release
from schemas.tensor import Tensor

Signatures = Annotated[tuple[Signature, ...], Field(max_length=MAX_PASSIVES + 1)]
MAX_QUERY_PLACES = 2**16  # people one query may ask for
MAX_PARTS_ASKED = 16  # parts of a large array that one request may ask for
PartNumber = Annotated[int, Field(ge=0, lt=MAX_PARTS)]
# What each one means, in words: hdpvfl_mq/endings.py.
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
    "message",
    "missing",
    "deadline",
    "end",
    "version",
]


class Ack(Closed):
    """No content: the acknowledgements are in the header."""

    kind: Literal["ack"] = "ack"


class PartRequest(Closed):
    """Asks for parts of the large array whose digests the receiver's envelope lists."""

    kind: Literal["part_request"] = "part_request"
    sequence: Count  # of that envelope, on its way to the sender of this request
    numbers: Annotated[tuple[PartNumber, ...], Field(min_length=1, max_length=MAX_PARTS_ASKED)]


class Part(Closed):
    """One part of a large array; the envelope with this sequence number lists its digest."""

    kind: Literal["part"] = "part"
    sequence: Count
    number: PartNumber
    tensor: Tensor


class Hello(Closed):
    """A process of this party has started or restarted; binds its connection to its name."""

    kind: Literal["hello"] = "hello"
    epoch: Epoch
    seed_commitment: Digest
    toss_commitment: Digest  # to this party's share of the public seed of entity resolution
    dataset_fingerprint: Digest  # keyed by the secret seed: only its owner can compare it
    numeric_profile: Text
    ledger: LedgerHead


class Welcome(Closed):
    """The coordinator has recorded the hello with this epoch."""

    kind: Literal["welcome"] = "welcome"
    epoch: Epoch
    waiting_for: Parties


class RunOffer(Closed):
    """The whole run, to be checked by every party against its own policy and ledger."""

    kind: Literal["run_offer"] = "run_offer"
    manifest: RunManifest


class RunAccept(Closed):
    """The party accepts; set size and column count are public (docs/threat-model.md)."""

    kind: Literal["run_accept"] = "run_accept"
    manifest_digest: Digest
    id_profile_digest: Digest
    set_size: Count
    columns: Count
    kept_alignment: Digest | None = None  # name of one from an earlier run, if it may be reused


class RunRefuse(Closed):
    """The party refuses the offer and names the rule that forbids it."""

    kind: Literal["run_refuse"] = "run_refuse"
    rule: Text


class AlignStart(Closed):
    """All have accepted: find the common entities."""

    kind: Literal["align_start"] = "align_start"
    is_kept: bool  # all keep the same alignment of an earlier run: nothing is exchanged
    # The toss commitments of all hellos, the active party's first.
    commitments: Annotated[tuple[Digest, ...], Field(max_length=MAX_PASSIVES + 1)]


class AlignBlock(Closed):
    """One block of entity resolution; hdpvfl_mq/psi defines its meaning."""

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
    """Rounds first..last-1 may run without further permission."""

    kind: Literal["round_plan"] = "round_plan"
    first: Round
    last: Round
    plan_digest: Digest


class Agreement(Closed):
    """Passive to active: the terms of this run, signed; nobody releases before all agree.

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
    # The coordinator's orders as this party heard them: their number and hash.
    orders: Count
    orders_digest: Digest
    release: Release


class Residual(Closed):
    """Active to every passive: noised loss derivatives of the round's batch."""

    kind: Literal["residual"] = "residual"
    round: Round
    release: Release


class ScoreQuery(Closed):
    """Active to every passive: asks for scores at these places; `last` ends the session."""

    kind: Literal["score_query"] = "score_query"
    number: Count
    last: bool
    places: Tensor


class ScoreReply(Closed):
    """Passive to active: sealed scores for the places that its account grants."""

    kind: Literal["score_reply"] = "score_reply"
    number: Count
    refused: Annotated[bytes, Field(max_length=MAX_QUERY_PLACES // 8)]  # a bit per place, or empty
    reason: Text  # why places are refused
    release: Release


class RoundReport(Closed):
    """A party has finished this many rounds; `last` by the schedule or by the public stop rule."""

    kind: Literal["round_report"] = "round_report"
    rounds_done: Round
    last: bool
    # The residuals this party has sent or received: their number and keyed hash.
    residuals: Count
    residuals_digest: Digest


class Ending(Closed):
    """Passive to active: signs the end of its rounds and the residuals it was trained on."""

    kind: Literal["ending"] = "ending"
    rounds: Round
    residuals_digest: Digest
    signature: Signature


class Ended(Closed):
    """Active to every passive: the signatures under the same end; nobody completes without it."""

    kind: Literal["ended"] = "ended"
    parties: Parties
    signatures: Signatures


class Pause(Closed):
    """The coordinator waits for these parties."""

    kind: Literal["pause"] = "pause"
    waiting_for: Parties


class Waiting(Closed):
    """Party to coordinator, in answer to a pause before the rounds: whom the party waits for."""

    kind: Literal["waiting"] = "waiting"
    waiting_for: Parties


class Resume(Closed):
    """Continue without `absent`; a party that was absent and is not named is back at `round`."""

    kind: Literal["resume"] = "resume"
    round: Round
    absent: Parties


class Withdraw(Closed):
    """A party leaves the run, which ends it for all; what it has spent stays spent.

    It goes to the coordinator and to every peer, so that the coordinator cannot hide it.
    """

    kind: Literal["withdraw"] = "withdraw"
    reason: WithdrawReason
    about: PartyId | None = None  # the party that the reason is about


class RunClosed(Closed):
    """The run is over for everybody."""

    kind: Literal["run_closed"] = "run_closed"
    outcome: Literal["completed", "refused", "withdrawn", "deadline", "mismatch"]
    reason: Text


class LedgerNotice(Closed):
    """The head of a party's ledger after its last release, for the others to remember."""

    kind: Literal["ledger_head"] = "ledger_head"
    head: LedgerHead
    signature: Signature  # the owner's, sent back to it later: nobody can invent a head


class LedgerWitness(Closed):
    """The newest ledger head of the receiver that a peer has seen, in any run, co-signed.

    Sent in answer to a notice, and before the first release of every later run: the owner then
    notices that its ledger was restored from an older copy.
    """

    kind: Literal["ledger_witness"] = "ledger_witness"
    head: LedgerHead
    owner_signature: Signature
    signature: Signature  # the witness's


Message = (
    Ack
    | PartRequest
    | Part
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
    | ScoreQuery
    | ScoreReply
    | RoundReport
    | Ending
    | Ended
    | Pause
    | Waiting
    | Resume
    | Withdraw
    | RunClosed
    | LedgerNotice
    | LedgerWitness
    | FederationMessage
)
Releasing = ScoreShare | Residual  # the only messages that carry numbers about rows
MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])

# They have no place in a stream and no record: the envelope they belong to has.
UNNUMBERED = frozenset({"ack", "part_request", "part"})
IN_PARTS = frozenset({"score_share", "residual"})  # their array may travel in parts
GREETINGS = frozenset({"hello", "member_hello"})  # they bind a connection; first on every new one

_PARTY: frozenset[RoleName] = frozenset({"active", "passive"})
_ALL: frozenset[RoleName] = frozenset({"active", "passive", "coordinator"})
_COORDINATOR: frozenset[RoleName] = frozenset({"coordinator"})
_ACTIVE: frozenset[RoleName] = frozenset({"active"})
_PASSIVE: frozenset[RoleName] = frozenset({"passive"})

# kind -> bytes of its array frame; other kinds have no array frame.
ARRAY_BYTES: dict[str, int] = {
    "part": MAX_PART_BYTES,
    "align_block": MAX_BLOCK_BYTES,
    "score_share": MAX_ARRAY_BYTES,
    "residual": MAX_ARRAY_BYTES,
    "score_query": MAX_QUERY_PLACES * 8,
    "score_reply": MAX_QUERY_PLACES * 8,
}

# kind -> (who may send it, who may receive it); any other combination is refused.
ROUTES: dict[str, tuple[frozenset[RoleName], frozenset[RoleName]]] = {
    "ack": (_ALL, _ALL),
    "part_request": (_PARTY, _PARTY),
    "part": (_PARTY, _PARTY),
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
    "score_query": (_ACTIVE, _PASSIVE),
    "score_reply": (_PASSIVE, _ACTIVE),
    "round_report": (_PARTY, _COORDINATOR),
    "ending": (_PASSIVE, _ACTIVE),
    "ended": (_ACTIVE, _PASSIVE),
    "pause": (_COORDINATOR, _PARTY),
    "waiting": (_PARTY, _COORDINATOR),
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
    "signed_roster": (_ALL, _ALL),
    "pair": (_ALL, _ALL),
    "key_changed": (_ALL, _ALL),
}

# Messages a run cannot continue without. Each stream is in order and each number is used once, so
# no honest message can replace one that was refused.
NEEDED = frozenset(
    {
        "run_offer",
        "run_accept",
        "run_refuse",
        "align_start",
        "align_block",
        "aligned",
        "agreement",
        "agreed",
        "round_plan",
        "resume",
        "score_share",
        "residual",
        "round_report",
        "ending",
        "ended",
        "withdraw",
        "run_closed",
    }
)
