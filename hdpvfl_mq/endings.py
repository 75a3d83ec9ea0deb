"""Why a run ends early: one sentence for every reason with which a party may withdraw.

It owns the wording and the outcome of each reason; it knows no role. The sentences are fixed, so
they reveal nothing about any row.
"""

from __future__ import annotations

from typing import Literal

from schemas.ids import PartyId
from schemas.messages import Withdraw, WithdrawReason

Outcome = Literal["completed", "refused", "withdrawn", "deadline", "mismatch"]
WHY: dict[WithdrawReason, str] = {
    "operator": "its operator asked for it",
    "budget": "its privacy budget does not allow the run",
    "rows": "the number of common rows, which is withheld, is outside alignment.rows_min..rows_max "
    "or does not allow the plan",
    "proof": "what {about} sent in entity resolution was not made as the protocol demands",
    "data": "its own settings or data stop it; its operator knows why",
    "manifest": "{about} holds another manifest: compare the files, and ask who sent them",
    "members": "{about} knows other members or keys: compare the [[peers]] of the settings",
    "toss": "{about} was told of other commitments to the public seed, or of another alignment",
    "order": "{about} has other common rows, or has them in another order",
    "plan": "{about} derives another plan: compare versions of the program",
    "signature": "{about} made or forwarded a signature that does not verify under what it holds",
    "ledger": "the privacy ledger of {about} is older than a head that it signed earlier",
    "orders": "{about} reports orders from the coordinator that differ from its own: an audit of "
    "their journals names who lies",
    "residuals": "{about} reports residuals that differ from its own: an audit of their journals "
    "names who lies",
    "message": "{about} sent it what the protocol does not allow, or one of the two has lost its "
    "journal or got an older copy of it back",
    "missing": "envelopes or acknowledgements of {about} are missing although later ones arrive: "
    "{about} or the broker withholds them",
    "deadline": "the deadline of the run is over",
    "end": "the coordinator states an outcome that contradicts what the withdrawing party has done",
    "version": "the run is held in an older version of the protocol than every party speaks: the "
    "broker has stated too old versions; ask its operator, then propose the run again",
}
_WITHDRAWN = ("operator", "budget", "rows", "proof", "data")


def why(withdrawn: Withdraw) -> str:
    """The reason as a sentence about the party that withdrew."""
    return WHY[withdrawn.reason].format(about=withdrawn.about or "a peer")


def said_by(sender: PartyId, withdrawn: Withdraw) -> str:
    """The reason of a run that ended by this withdrawal."""
    return f"{sender} withdrew: {why(withdrawn)}"


def outcome_of(reason: WithdrawReason) -> Outcome:
    """The outcome of a reason: a party chose to leave, or the parties do not fit each other."""
    if reason == "deadline":
        return "deadline"
    return "withdrawn" if reason in _WITHDRAWN else "mismatch"
