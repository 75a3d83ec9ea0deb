"""A party's recorded run folded again, inside the party: same role, same data, same secret.

It owns how settings and a journal become a node that can only look back: its store hands out
records and accepts none, and no ledger is opened. Whether a step comes out as recorded is decided
by the node, the same way as at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nacl.signing import VerifyKey

from broker.coordinator import Coordinator
from hdpvfl_mq.audit.evidence import StoredRecord, Transcript
from hdpvfl_mq.audit.reader import read_transcript
from hdpvfl_mq.errors import IntegrityError, SettingsError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.profile import numeric_profile, pin_threads
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.wire.codec import model_digest
from parties.assets import Assets
from parties.party import Party
from parties.process.build import PartyFiles, contacts, load_assets
from schemas.config import BrokerSettings, PartySettings, RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Hello
from schemas.records import StepRecord


@dataclass(frozen=True)
class RecordedStore:
    """Records to fold; nothing can be added."""

    rows: Sequence[StoredRecord]

    def records(self, first: int = 0) -> Iterator[StoredRecord]:
        """The rows as read."""
        return iter(self.rows[first:])

    def commit(self, *_: object) -> NoReturn:
        """A replay records nothing."""
        raise IntegrityError("a replay tried to write")

    def close(self) -> None:
        """There is no file."""


@dataclass(frozen=True)
class Replay:
    """A node at the beginning of its journal."""

    node: Node
    transcript: Transcript

    def steps(self) -> Iterator[StepRecord]:
        """Fold one record after the other; DivergenceError where one comes out differently."""
        for record, stored in chain.walk(self.transcript.rows):
            self.node.refold(record, stored)
            yield record


def open_replay(folder: Path, party: PartyId, settings: Path | None = None) -> Replay:
    """The node and the journal of one party of a run."""
    own = folder / party / "settings.toml"  # what a service wrote when the run opened
    path = settings or (own if own.exists() else folder / "settings" / f"{party}.toml")
    transcript = read_transcript(_existing(folder / party / "journal.db"), party)
    if party == COORDINATOR:
        return Replay(_coordinator(load_settings(BrokerSettings, path), transcript), transcript)
    return Replay(_member(load_settings(PartySettings, path), transcript), transcript)


def _member(settings: PartySettings, transcript: Transcript) -> Node:
    pin_threads()
    _existing(PartyFiles(settings).secret)  # a new one must not be made here
    keys = load_keys(Path(settings.keys))
    own = load_assets(settings, keys)
    _check_seed(own, transcript)
    identity = Identity(settings.party, settings.role, settings.run, keys.signing)
    store = RecordedStore(transcript.rows)
    return Node(Party(own), identity, contacts(settings), journal=store)


def _coordinator(settings: BrokerSettings, transcript: Transcript) -> Node:
    manifest = load_settings(RunManifest, Path(settings.manifest))
    keys = load_keys(Path(settings.keys))
    return Node(
        Coordinator(manifest, model_digest(manifest)),
        Identity(COORDINATOR, "coordinator", manifest.run, keys.signing),
        {
            member.party: Contact(member.role, VerifyKey(bytes.fromhex(member.verify_key)))
            for member in settings.members
        },
        journal=RecordedStore(transcript.rows),
    )


def _check_seed(own: Assets, transcript: Transcript) -> None:
    hello = first_hello(transcript)
    if hello.seed_commitment != commitment(own.secret, own.salt):
        raise IntegrityError(
            f"the secret of {own.party} is not the one it committed to in its first hello: "
            "put the secret file of this run back"
        )


def first_hello(transcript: Transcript) -> Hello:
    """What the party committed to when it joined."""
    for envelope in transcript.sent():
        if isinstance(envelope.message, Hello):
            return envelope.message
    raise IntegrityError(f"the journal of {transcript.party} holds no hello")


def profile_note(transcript: Transcript) -> str:
    """How this machine's numeric profile differs from the recorded one; empty when it does not."""
    recorded, now = first_hello(transcript).numeric_profile, numeric_profile()[:500]
    return "" if recorded == now else f"numeric profile: recorded {recorded!r}, now {now!r}"


def _existing(path: Path) -> Path:
    if not path.exists():
        raise SettingsError(f"{path} does not exist; a replay runs where the party ran")
    return path
