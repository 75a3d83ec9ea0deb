"""The terms that parties agree on before they resolve entities; it owns their bounds and check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.psi.elements import MAX_IDS
from hdpvfl_mq.psi.match import PAIR_BYTES
from hdpvfl_mq.psi.stream import derive
from schemas.config import AlignmentMethod

MEMBERS_BYTES = 32
MIN_BLOCK_BYTES = 1 << 14  # the 480 points of a choice fit into one block


@dataclass(frozen=True)
class Terms:
    """The terms that all parties agree on before they start; the hello compares them."""

    method: Literal["auto", AlignmentMethod]  # auto: all choose the same by the sizes in the hellos
    active: str
    passives: tuple[str, ...]
    session_id: bytes  # 32 bytes, different in every run
    commitments: tuple[bytes, ...]  # to every party's nonce (toss.py), the active party's first
    profile_digest: bytes
    rows_min: int = 0
    rows_max: int = MAX_IDS
    block_bytes: int = 1 << 22
    window: int = 8
    bucket_ids: int | None = None  # None: the method's default
    # Digest of the members' names and keys, if the active party relays signed hellos (greeting.py).
    # It is not in the check of version 1, which has none.
    members: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not self.passives or len({self.active, *self.passives}) != len(self.passives) + 1:
            raise SettingsError(
                "entity resolution needs one or more passive parties, all different"
            )
        if len(self.commitments) != len(self.parties):
            raise SettingsError("entity resolution needs a commitment of every party")
        if len(self.members) not in (0, MEMBERS_BYTES):
            raise SettingsError(f"the digest of the members must have {MEMBERS_BYTES} bytes")
        too_few = self.bucket_ids is not None and self.bucket_ids < 1
        if self.block_bytes < MIN_BLOCK_BYTES or self.window < 1 or too_few:
            raise SettingsError(
                f"block_bytes must be at least {MIN_BLOCK_BYTES}, window and bucket_ids positive"
            )
        if self.block_bytes % PAIR_BYTES:  # a block holds whole elements
            raise SettingsError(f"block_bytes must be a multiple of {PAIR_BYTES}")

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active party first."""
        return (self.active, *self.passives)

    @property
    def is_relayed(self) -> bool:
        """Whether the active party relays the hellos of all, as from version 2 on."""
        return bool(self.members)

    def commitment_of(self, party: str) -> bytes:
        """A party's commitment to its nonce."""
        return self._committed[party]

    @cached_property
    def _committed(self) -> dict[str, bytes]:
        return dict(zip(self.parties, self.commitments, strict=True))

    def checks(self) -> tuple[bytes, bytes]:
        """Hashes of the id profile and of the other terms; neither is secret."""
        return self._checks

    @cached_property
    def _checks(self) -> tuple[bytes, bytes]:
        rest = repr(replace(self, profile_digest=b"")).encode()
        return (
            derive(self.profile_digest, "id profile"),
            derive(self.session_id, "psi terms 2", rest),
        )
