"""The messages of a run, the tagged union of all messages, and tables of who may send what to whom.

It owns the messages of the protocol; it knows no behaviour. Each class states its route. A number
computed from private rows can only travel inside a `Release`, which only the mechanism makes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, TypeAdapter

from schemas.base import Count, Digest, Strict, Text
from schemas.config import RunManifest
from schemas.delivery import DeliveryMessage
from schemas.envelope import MAX_ARRAY_BYTES, MAX_BLOCK_BYTES
from schemas.federation import FederationMessage
from schemas.ids import MAX_PASSIVES, Epoch, Parties, PartyId, Round
from schemas.privacy import LedgerHead, Release
from schemas.route import ACTIVE_ROLE, ALL_ROLES, ANY_PARTY, COORDINATOR_ROLE, PASSIVE_ROLE, Route
from schemas.scoring import ScoreReply, ScoringMessage
from schemas.signed import SignedMessage
from schemas.tensor import Tensor

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


class Hello(Strict):
    """A process of this party has started or restarted; binds its connection to its name."""

    kind: Literal["hello"] = "hello"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE, is_greeting=True)
    epoch: Epoch
    seed_commitment: Digest
    toss_commitment: Digest  # to this party's share of the public seed of entity resolution
    dataset_fingerprint: Digest  # keyed by the secret seed: only its owner can compare it
    numeric_profile: Text
    ledger: LedgerHead


class Welcome(Strict):
    """The coordinator has recorded the hello with this epoch."""

    kind: Literal["welcome"] = "welcome"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_notice=True)
    epoch: Epoch
    waiting_for: Parties


class RunOffer(Strict):
    """The whole run, to be checked by every party against its own policy and ledger."""

    kind: Literal["run_offer"] = "run_offer"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_needed=True)
    manifest: RunManifest


class RunAccept(Strict):
    """The party accepts; set size and column count are public (docs/threat-model.md)."""

    kind: Literal["run_accept"] = "run_accept"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE, is_needed=True)
    manifest_digest: Digest
    id_profile_digest: Digest
    set_size: Count
    columns: Count
    kept_alignment: Digest | None = None  # name of one from an earlier run, if it may be reused


class RunRefuse(Strict):
    """The party refuses the offer and names the rule that forbids it."""

    kind: Literal["run_refuse"] = "run_refuse"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE, is_needed=True)
    rule: Text


class AlignStart(Strict):
    """All have accepted: find the common entities."""

    kind: Literal["align_start"] = "align_start"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_needed=True)
    is_kept: bool  # all keep the same alignment of an earlier run: nothing is exchanged
    # The toss commitments of all hellos, the active party's first.
    commitments: Annotated[tuple[Digest, ...], Field(max_length=MAX_PASSIVES + 1)]


class AlignBlock(Strict):
    """One block of entity resolution; hdpvfl_mq/psi defines its meaning."""

    kind: Literal["align_block"] = "align_block"
    route: ClassVar[Route] = Route(
        ANY_PARTY, ANY_PARTY, is_needed=True, array_bytes=MAX_BLOCK_BYTES
    )
    stage: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]
    index: Count
    last: bool
    meta: Annotated[tuple[Count, ...], Field(max_length=64)]
    tensor: Tensor


class Aligned(Strict):
    """The party knows its common rows; equal digests mean equal order and plan everywhere."""

    kind: Literal["aligned"] = "aligned"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE, is_needed=True)
    rows: Count
    rounds: Round
    order_digest: Digest
    plan_digest: Digest


class RoundPlan(Strict):
    """Rounds first..last-1 may run without further permission."""

    kind: Literal["round_plan"] = "round_plan"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_needed=True)
    first: Round
    last: Round
    plan_digest: Digest


class ScoreShare(Strict):
    """Passive to active: noised inner products of the round's batch."""

    kind: Literal["score_share"] = "score_share"
    route: ClassVar[Route] = Route(
        PASSIVE_ROLE, ACTIVE_ROLE, is_needed=True, array_bytes=MAX_ARRAY_BYTES, in_parts=True
    )
    round: Round
    # The coordinator's orders as this party heard them: their number and hash.
    orders: Count
    orders_digest: Digest
    release: Release


class Residual(Strict):
    """Active to every passive: noised loss derivatives of the round's batch."""

    kind: Literal["residual"] = "residual"
    route: ClassVar[Route] = Route(
        ACTIVE_ROLE, PASSIVE_ROLE, is_needed=True, array_bytes=MAX_ARRAY_BYTES, in_parts=True
    )
    round: Round
    release: Release


class RoundReport(Strict):
    """A party has finished this many rounds; `last` by the schedule or by the public stop rule."""

    kind: Literal["round_report"] = "round_report"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE, is_needed=True)
    rounds_done: Round
    last: bool
    # The residuals this party has sent or received: their number and keyed hash.
    residuals: Count
    residuals_digest: Digest


class Pause(Strict):
    """The coordinator waits for these parties."""

    kind: Literal["pause"] = "pause"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_notice=True)
    waiting_for: Parties


class Waiting(Strict):
    """Party to coordinator, in answer to a pause: whom the party waits for."""

    kind: Literal["waiting"] = "waiting"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE)
    in_rounds_since: ClassVar[int] = 2  # version of the protocol; before, not during rounds
    waiting_for: Parties


class Resume(Strict):
    """Continue without `absent`; a party that was absent and is not named is back at `round`."""

    kind: Literal["resume"] = "resume"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_needed=True)
    round: Round
    absent: Parties


class Withdraw(Strict):
    """A party leaves the run, which ends it for all; what it has spent stays spent.

    It goes to the coordinator and to every peer, so that the coordinator cannot hide it.
    """

    kind: Literal["withdraw"] = "withdraw"
    route: ClassVar[Route] = Route(ANY_PARTY, ALL_ROLES, is_needed=True)
    reason: WithdrawReason
    about: PartyId | None = None  # the party that the reason is about


class RunClosed(Strict):
    """The run is over for everybody."""

    kind: Literal["run_closed"] = "run_closed"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY, is_needed=True)
    outcome: Literal["completed", "refused", "withdrawn", "deadline", "mismatch"]
    reason: Text


Message = (
    DeliveryMessage
    | Hello
    | Welcome
    | RunOffer
    | RunAccept
    | RunRefuse
    | AlignStart
    | AlignBlock
    | Aligned
    | RoundPlan
    | ScoreShare
    | Residual
    | RoundReport
    | Pause
    | Waiting
    | Resume
    | Withdraw
    | RunClosed
    | ScoringMessage
    | SignedMessage
    | FederationMessage
)
Releasing = ScoreShare | Residual  # the only messages that carry numbers about rows of a training
Numbers = Releasing | ScoreReply
MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])

# What each class states, by kind.
_ROUTES: dict[str, Route] = {
    each.model_fields["kind"].default: each.route for each in get_args(Message)
}
ROUTES = {kind: (route.senders, route.receivers) for kind, route in _ROUTES.items()}
NEEDED = frozenset(kind for kind, route in _ROUTES.items() if route.is_needed)
UNNUMBERED = frozenset(kind for kind, route in _ROUTES.items() if not route.is_numbered)
IN_PARTS = frozenset(kind for kind, route in _ROUTES.items() if route.in_parts)
GREETINGS = frozenset(kind for kind, route in _ROUTES.items() if route.is_greeting)
# After one of these, its sender has no part in the run.
LAST_WORDS = frozenset({"withdraw", "run_closed"})
NOTICES = tuple(kind for kind, route in _ROUTES.items() if route.is_notice)
# kind -> most bytes of its array frame; other kinds have no array frame.
ARRAY_BYTES = {kind: route.array_bytes for kind, route in _ROUTES.items() if route.array_bytes}
