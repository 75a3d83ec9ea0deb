"""Names of parties, runs and rounds, as distinct bounded types."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

PARTY_PATTERN = r"^[a-z][a-z0-9_-]{0,31}$"

PartyId = Annotated[str, Field(pattern=PARTY_PATTERN)]
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
DatasetId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
# A release id names one payload, for ever: run/party/kind/round.
ReleaseId = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}/[a-z0-9_-]{1,32}/[a-z]{1,16}/[0-9]{1,12}$")
]
Round = Annotated[int, Field(ge=0, le=10_000_000)]
Epoch = Annotated[int, Field(ge=1, le=2**31)]
# A version of the protocol. A program also speaks the one before its newest (envelope.py).
OLDEST_VERSION = 1
Version = Annotated[int, Field(ge=OLDEST_VERSION, le=2**16)]

PartyRole = Literal["active", "passive"]
RoleName = Literal["active", "passive", "coordinator"]
PARTY_ROLES: tuple[PartyRole, ...] = ("active", "passive")

COORDINATOR: PartyId = "coordinator"
MAX_PASSIVES = 512
Parties = Annotated[tuple[PartyId, ...], Field(max_length=MAX_PASSIVES + 1)]


def release_id(run: RunId, party: PartyId, kind: str, round_: int) -> ReleaseId:
    """The name of one release."""
    return f"{run}/{party}/{kind}/{round_}"
