"""The lifetime cap of a policy in the ledger's units.

It owns how much of the cap is left for Gaussian noise beside the slots of bounded noise.
"""

from __future__ import annotations

import math

from hdpvfl_mq.privacy.pure import mu_beside, pure_units_of
from schemas.policy import PartyPolicy
from schemas.privacy import MU2_UNIT_BITS, LedgerHead
from schemas.records import GENESIS, LedgerStanding

# A share 2^-20 of the cap stays free once noised scores are charged: the account counts no tau, and
# that of all scores is far below what this share of mu^2 leaves of delta.
_TAU_BITS = 20


def unspent(policy: PartyPolicy) -> LedgerStanding:
    """The standing of a ledger under this policy before anything is spent."""
    slots = tuple(pure_units_of(epsilon) for epsilon in policy.pure_slots)
    return LedgerStanding(
        head=LedgerHead(sequence=0, digest=GENESIS),
        mu2_units_free=cap_units(policy, slots),
        slots_free=slots,
    )


def cap_units(policy: PartyPolicy, slots: tuple[int, ...]) -> int:
    """The cap on mu^2 beside these slots."""
    cap = policy.lifetime
    return math.floor(mu_beside(cap.epsilon, cap.delta, slots) ** 2 * 2.0**MU2_UNIT_BITS)


def below(units: int) -> int:
    """The cap that is left once noised scores are charged."""
    return units - (units >> _TAU_BITS)
