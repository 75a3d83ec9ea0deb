"""Replay a party's recorded run inside the party: same role, same data, same secret.

It owns how settings and a journal become a node that can only replay: its store returns records
and accepts none, and no ledger is opened. The node itself compares each step with its record, as
it does at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nacl.signing import VerifyKey

from broker.coordinator import Coordinator
from hdpvfl_mq.audit.evidence import Joined, StoredRecord, Transcript, no_parts
from hdpvfl_mq.audit.reader import read_transcript
from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.errors import IntegrityError, SettingsError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.profile import numeric_profile
from hdpvfl_mq.runtime.settings import fields_of, load_settings
from hdpvfl_mq.wire.codec import model_digest
from parties.assets import Assets
from parties.process.build import PartyFiles, contacts, identity_of, load_assets
from parties.process.steps_on_disk import role_of
from schemas.config import BrokerSettings, PartySettings, RunManifest
from schemas.engine import EngineSettings
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Hello
from schemas.records import StepRecord


@dataclass(frozen=True)
class RecordedStore:
    """A read-only store of the records to fold."""

    rows: Sequence[StoredRecord]
    joined: Joined = no_parts

    def records(self, first: int = 0) -> Iterator[StoredRecord]:
        """The records as read from the journal."""
        return iter(self.rows[first:])

    def commit(self, *_: object) -> NoReturn:
        """Refuse: a replay records nothing."""
        raise IntegrityError("a replay tried to write")

    def part(self, *_: object) -> NoReturn:
        """Refuse: a replay sends nothing."""
        raise IntegrityError("a replay tried to send")

    keep_parts = commit
    missing_parts = part

    def close(self) -> None:
        """Do nothing, because there is no open file."""


@dataclass(frozen=True)
class Replay:
    """A node at the beginning of its journal."""

    node: Node
    transcript: Transcript

    def steps(self) -> Iterator[StepRecord]:
        """Fold the records one by one; DivergenceError at the first that comes out differently."""
        for record, stored in chain.walk(self.transcript.rows):
            self.node.refold(record, stored)
            yield record


def settings_file(folder: Path, party: PartyId) -> Path:
    """Path of a party's settings for a run; the file may be missing."""
    own = folder / party / "settings.toml"  # written by a service when the run opened
    return own if own.exists() else folder / "settings" / f"{party}.toml"


def open_replay(folder: Path, party: PartyId, settings: Path | None = None) -> Replay:
    """The node and the journal of one party of a run."""
    path = settings or settings_file(folder, party)
    transcript = read_transcript(_existing(folder / party / "journal.db"), party)
    if party == COORDINATOR:
        return Replay(_coordinator(load_settings(BrokerSettings, path), transcript), transcript)
    return Replay(_member(load_settings(PartySettings, path), transcript), transcript)


def _member(settings: PartySettings, transcript: Transcript) -> Node:
    pin_threads()
    _existing(PartyFiles(settings).secret)  # a replay must not create a new secret
    keys = load_keys(Path(settings.keys))
    # The bits do not depend on the engine, so a replay needs no cluster.
    settings = PartySettings(**{**fields_of(settings), "engine": EngineSettings()})
    own = load_assets(settings, keys)
    _check_seed(own, transcript)
    store = RecordedStore(transcript.rows, transcript.joined)
    return Node(role_of(own), identity_of(settings, keys), contacts(settings), journal=store)


def _coordinator(settings: BrokerSettings, transcript: Transcript) -> Node:
    manifest = load_settings(RunManifest, Path(settings.manifest))
    keys, wire = load_keys(Path(settings.keys)), manifest.wire
    return Node(
        Coordinator(manifest, model_digest(manifest)),
        Identity(COORDINATOR, "coordinator", manifest.run, keys.signing, versions=(wire, wire)),
        {
            member.party: Contact(member.role, VerifyKey(bytes.fromhex(member.verify_key)), wire)
            for member in settings.members
        },
        journal=RecordedStore(transcript.rows, transcript.joined),
    )


def _check_seed(own: Assets, transcript: Transcript) -> None:
    hello = first_hello(transcript)
    if hello.seed_commitment != commitment(own.secret, own.salt):
        raise IntegrityError(
            f"the secret of {own.party} is not the one it committed to in its first hello: "
            "put the secret file of this run back"
        )


def first_hello(transcript: Transcript) -> Hello:
    """The party's first hello, with what it committed to when it joined."""
    for envelope in transcript.sent():
        if isinstance(envelope.message, Hello):
            return envelope.message
    raise IntegrityError(f"the journal of {transcript.party} holds no hello")


def profile_note(transcript: Transcript) -> str:
    """How this machine's numeric profile differs from the recorded one; empty if it does not."""
    recorded, now = first_hello(transcript).numeric_profile, numeric_profile()[:500]
    return "" if recorded == now else f"numeric profile: recorded {recorded!r}, now {now!r}"


def _existing(path: Path) -> Path:
    if not path.exists():
        raise SettingsError(f"{path} does not exist; a replay runs where the party ran")
    return path
