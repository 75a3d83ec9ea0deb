"""The audit: thirteen numbered checks that need neither data nor secrets.

It owns their order, what their results mean together and what no outsider can check; the checks
themselves are in checks_*.py.

     1  records can be read and stand in order        8  no row is released twice in an epoch
     2  the hash chain holds                          9  mechanism and sigma suffice for the claim
     3  signatures verify, epochs rise               10  sums and ledger agree
     4  checkpoints are witnessed                    11  release ids are unique
     5  both ends agree on every message             12  reserves and caps are kept
     6  messages fit schema, limits and routes       13  versions, seed and profile stay the same
     7  rounds follow the plan of the manifest
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hdpvfl_mq.audit import checks_chain, checks_privacy, checks_run
from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Evidence

Check = Callable[[Evidence], None]
LAST_INTEGRITY_CHECK = 5  # a failure up to here means that stored evidence contradicts itself


@dataclass(frozen=True)
class Numbered:
    """A check with its number and the statement that holds when it passes."""

    number: int
    title: str
    check: Check


@dataclass(frozen=True)
class Verdict:
    """The result of one check; `found` is empty when it passed."""

    number: int
    title: str
    found: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check found nothing."""
        return not self.found


CHECKS = (
    Numbered(1, "every record can be read and stands in order", checks_chain.records_in_order),
    Numbered(2, "every record is linked to the one before it", checks_chain.chain_holds),
    Numbered(3, "every envelope is signed by its sender", checks_chain.signatures_verify),
    Numbered(
        4, "every signed or witnessed journal head is there", checks_chain.checkpoints_witnessed
    ),
    Numbered(5, "both ends agree on every message", checks_chain.both_ends_agree),
    Numbered(6, "every message fits its schema, limits and route", checks_run.messages_legal),
    Numbered(7, "every round follows the plan of the manifest", checks_run.schedule_followed),
    Numbered(8, "no row is released twice in an epoch", checks_run.rows_once_an_epoch),
    Numbered(9, "the declared noise suffices for the claim", checks_privacy.noise_sufficient),
    Numbered(10, "the sums of all costs agree with plan and ledger", checks_privacy.sums_agree),
    Numbered(11, "every release id names one payload", checks_privacy.release_ids_unique),
    Numbered(12, "every reserve is within its cap", checks_privacy.caps_kept),
    Numbered(
        13, "seed, data and numeric profile stayed the same", checks_privacy.versions_constant
    ),
)

NOT_VERIFIABLE = (
    "that a party's rows are what it says they are, or that it used the same rows in every round",
    "that the noise was drawn from the committed seed and added before a release left: only "
    "'hdpvfl replay' inside the party, with its data and secret, shows that",
    "that declared preprocessing constants were not fitted on the rows",
    "that nothing left a machine by another way than these messages",
    "that a party shows what it received after its last own message: nobody has witnessed it",
    "that all parties together did not rewrite history: they hold all signing keys",
)


def audit(evidence: Evidence, checks: Sequence[Numbered] = CHECKS) -> tuple[Verdict, ...]:
    """Run every check; a check that cannot run on this evidence counts as a finding."""
    return tuple(
        Verdict(numbered.number, numbered.title, _found(numbered, evidence)) for numbered in checks
    )


def _found(numbered: Numbered, evidence: Evidence) -> str:
    try:
        numbered.check(evidence)
    except CheckFailed as failed:
        return str(failed)
    # Evidence may hold anything; an exception in a check is a finding, never a pass.
    except Exception as broken:  # noqa: BLE001 - see above
        return f"cannot be checked: {type(broken).__name__}: {broken}"
    return ""


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """0: no finding; 5: the evidence contradicts itself; 1: it agrees, but the run is wrong."""
    failed = [verdict.number for verdict in verdicts if not verdict.passed]
    if not failed:
        return 0
    return 5 if min(failed) <= LAST_INTEGRITY_CHECK else 1
