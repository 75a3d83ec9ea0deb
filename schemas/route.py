"""The facts about a message that its class states: who may send it to whom, and how it travels.

It owns this shape and the groups of roles; each message owns its facts.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.ids import PARTY_ROLES, RoleName

ACTIVE_ROLE: frozenset[RoleName] = frozenset({"active"})
PASSIVE_ROLE: frozenset[RoleName] = frozenset({"passive"})
ANY_PARTY: frozenset[RoleName] = frozenset(PARTY_ROLES)
COORDINATOR_ROLE: frozenset[RoleName] = frozenset({"coordinator"})
ALL_ROLES: frozenset[RoleName] = ANY_PARTY | COORDINATOR_ROLE


@dataclass(frozen=True)
class Route:
    """Who may send a message, who may receive it, and how; any other combination is refused."""

    senders: frozenset[RoleName]
    receivers: frozenset[RoleName]
    # A run cannot continue without it. Each stream is in order and each number is used once, so no
    # honest message can replace one that was refused.
    is_needed: bool = False
    array_bytes: int = 0  # limit of its array frame; 0: it has none
    in_parts: bool = False  # its array may travel in parts
    is_numbered: bool = True  # False: no place in a stream and no record, its envelope has them
    is_greeting: bool = False  # binds a connection; first on every new one
    is_notice: bool = False  # only informs a party; one that cannot take part ignores it
