"""Pure slots of a cap: which release takes which slot, and how much of each is left.

It owns the placing and the sums; it knows no entry and no file. A slot is a pure epsilon fixed
beforehand. Mechanisms may share a slot if their epsilons add up to at most the slot's. A mechanism
is never split over two slots, since two halves do not dominate the whole. The unused rest of a slot
stays pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.privacy import SlotShare


def taken(shares: Iterable[SlotShare], slots: int) -> tuple[int, ...]:
    """How many units of each slot these shares take."""
    sums = [0] * slots
    for share in shares:
        sums[share.slot] += share.units
    return tuple(sums)


def placed(wanted: Iterable[int], free: Sequence[int]) -> tuple[SlotShare, ...] | None:
    """Place each epsilon in the fullest slot with room for it; None if one has no slot."""
    left, shares = list(free), []
    for units in sorted(wanted, reverse=True):
        holding = [(room, slot) for slot, room in enumerate(left) if room >= units]
        if not holding:
            return None
        _, slot = min(holding)
        left[slot] -= units
        shares.append(SlotShare(slot=slot, units=units))
    return tuple(sorted(shares, key=lambda share: (share.slot, share.units)))


def unused(shares: Iterable[SlotShare], used: Iterable[SlotShare]) -> list[SlotShare]:
    """The shares that no release has taken yet."""
    left = list(shares)
    for share in used:
        left.remove(share)
    return left
