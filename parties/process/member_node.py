"""A party's node in its federation, and the keys that its journal was signed with.

It owns the files in `federations/` and which of the party's keys is in use; the membership decides
when a key is replaced. Replay needs every key that has signed in the journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nacl.signing import VerifyKey

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.runtime.keys import Keys, load_ring, read_changes, read_secret, write_secret
from hdpvfl_mq.wire.signing import frames_digest, is_signed
from parties.belonging import Belonging
from parties.membership import Membership
from parties.pairing import Self
from schemas.commands import SeatMember
from schemas.config import PartyServiceSettings
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR, OLDEST_VERSION
from schemas.key_change import KeyChange
from schemas.records import EnvelopeSent

PAIRING_SECRET_BYTES = 32


class MemberNode:
    """The membership's node of one party."""

    def __init__(self, settings: PartyServiceSettings, state: Path) -> None:
        self.settings, self._folder = settings, state / "federations"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._keys = Path(settings.keys)
        self._secret = self._folder / f"{settings.federation}.secret"
        if not self._secret.exists():
            write_secret(self._secret, os.urandom(PAIRING_SECRET_BYTES))
        self._ring = load_ring(self._keys)
        self._later = {_public(keys): keys.signing for keys in self._ring}
        self.node = self._open()

    def _open(self) -> Node:
        settings, name = self.settings, self.settings.federation
        path = self._folder / f"{name}.db"
        journal = Journal(path, run=name, party=settings.party)
        first = self._first_of(journal.records())
        me = Self(
            name,
            settings.party,
            _public(first),
            first.curve_public,
            read_secret(self._secret, PAIRING_SECRET_BYTES),
            settings.role,
        )
        broker = VerifyKey(bytes.fromhex(settings.broker_verify_key))
        node = Node(
            Membership(me, first.signing, self._later),
            Identity(
                settings.party,
                settings.role,
                name,
                first.signing,
                self._later,
                versions=(OLDEST_VERSION, settings.speaks),
            ),
            # The broker is upgraded first.
            {COORDINATOR: Contact("coordinator", broker, PROTOCOL_VERSION)},
            journal=journal,
        )
        node.open()
        return node

    def _first_of(self, records: Iterable[tuple[int, bytes, bytes]]) -> Keys:
        """The keys that signed the journal's first envelope; the newest for an empty journal."""
        for index, stored, _ in records:
            for effect in chain.decode(stored, index).effects:
                if isinstance(effect, EnvelopeSent):
                    return self._signer_of(effect)
        return self._ring[-1]

    def _signer_of(self, sent: EnvelopeSent) -> Keys:
        digest = frames_digest(sent.frames)
        for keys in self._ring:
            if is_signed(keys.signing.verify_key, digest, sent.frames[1]):
                return keys
        raise IntegrityError(
            f"the membership in {self._folder} was not begun with the keys of {self._keys}, nor "
            "with keys that these replaced: state in party.toml the folder of the newest keys, "
            "and keep the folders of the earlier ones"
        )

    @property
    def state(self) -> Belonging:
        """This party's state in its federation."""
        state = self.node.state
        assert isinstance(state, Belonging)
        return state

    @property
    def role(self) -> Membership:
        """This party's role in its federation."""
        role = self.node.role
        assert isinstance(role, Membership)
        return role

    @property
    def keys(self) -> Keys:
        """The keys that this party uses now."""
        return next(k for k in self._ring if _public(k) == self.role.me(self.state).verify_key)

    @property
    def former(self) -> Keys | None:
        """The keys that the current ones replaced; None if these are the first."""
        place = self._ring.index(self.keys)
        return self._ring[place - 1] if place else None

    def take_ring(self, folder: Path) -> None:
        """Learn newer keys that were made while this process runs."""
        self._keys, self._ring = folder, load_ring(folder)
        self._later |= {_public(keys): keys.signing for keys in self._ring}
        self.role.learn(self._later)

    def new_members(self) -> list[SeatMember]:
        """Peers of the settings that the membership has not pinned with these keys."""
        found = []
        for peer in self.settings.peers:
            key = bytes.fromhex(peer.verify_key)
            known = self.state.fellows.get(peer.party)
            left = self.state.former.get(peer.party, ())
            if key in (*left, *self.state.removed.get(peer.party, ())):
                continue  # replaced by this member, or removed by this party's operator
            if peer.role != "coordinator" and (known is None or known.verify_key != key):
                found.append(
                    SeatMember(
                        party=peer.party, role=peer.role, verify_key=key, curve_key=bytes(32)
                    )
                )
        return found

    def changes(self) -> list[KeyChange]:
        """The changes from the keys in use to the newest, oldest first."""
        known = read_changes(self._keys)
        changes = [] if known is None else list(known.changes)
        used = _public(self.keys).hex()
        places = [n for n, change in enumerate(changes) if change.former_key == used]
        return changes[places[0] :] if places else []


def _public(keys: Keys) -> bytes:
    return bytes(keys.signing.verify_key)
