"""Builds a node from settings: everything a party's process reads before it sends anything.

It owns where a party's files are; it knows no socket. Bad data, a missing key or a locked ledger
stops the process here, before anything is sent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nacl.signing import VerifyKey

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.data.databases import spooled
from hdpvfl_mq.data.preprocess import PreparedData, prepare, prepare_mapped
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.engine.port import Engine
from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node import node_snapshot
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.psi import IdCollector, NormalisedIds, normalise, rules_digest
from hdpvfl_mq.runtime.beside import BESIDE
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.keys import Keys, former_keys, read_secret, write_secret
from hdpvfl_mq.runtime.profile import numeric_profile
from hdpvfl_mq.runtime.settings import fields_of, load_settings
from parties.assets import Assets, ids_digest
from parties.process import alignment_store
from parties.process.engines import engine_of, space_of
from parties.process.gram_store import GramStore
from parties.process.ledger_book import LedgerBook, recognise
from parties.process.ledger_file import open_ledger
from parties.process.mapped_arrays import MappedArrays
from parties.process.models import read_model, scoring_settings
from parties.process.steps_on_disk import role_of
from schemas.config import PartyServiceSettings, PartySettings
from schemas.data import DataSettings
from schemas.policy import PartyPolicy
from schemas.snapshot import NodeSnapshot

SECRET_BYTES, SALT_BYTES = 32, 16


@dataclass(frozen=True)
class PartyFiles:
    """The paths of a party's files."""

    settings: PartySettings

    @property
    def run(self) -> Path:
        """This run's folder."""
        return Path(self.settings.runs) / self.settings.run / self.settings.party

    @property
    def state(self) -> Path:
        """The folder of files that outlive runs."""
        return Path(self.settings.state) / self.settings.party

    @property
    def ledger(self) -> Path:
        """The privacy ledger."""
        return self.state / "ledger.db"

    @property
    def spool(self) -> Path:
        """Rows that this run's query returned."""
        return self.state / "spool" / self.settings.run

    @property
    def alignments(self) -> Path:
        """Common rows found in this and earlier runs."""
        return self.state / "alignments"

    @property
    def statistics(self) -> Path:
        """Noised statistics of data sets, paid for once."""
        return self.state / "statistics"

    @property
    def snapshot(self) -> Path:
        """The snapshot of this run's state: it holds weights, so it is not part of the evidence."""
        return self.state / "snapshots" / self.settings.run

    @property
    def journal(self) -> Path:
        """The record of everything this party has sent and received in this run."""
        return self.run / "journal.db"

    @property
    def secret(self) -> Path:
        """Noise seed and salt of this run."""
        return self.state / "secrets" / f"{self.settings.run}.secret"


def retire_secret(settings: PartySettings) -> None:
    """Before a process starts: delete a used secret whose journal is gone.

    A journal begins with a commitment to its secret. A peer whose guess that journal exposed must
    not get to try again with the same keys.
    """
    files = PartyFiles(settings)
    if _used(files.secret).exists() and not files.journal.exists():
        files.secret.unlink(missing_ok=True)
        _used(files.secret).unlink()


def run_secret(path: Path) -> tuple[bytes, bytes]:
    """Seed and salt of a run: drawn from the operating system once, then read from the file."""
    if not path.exists():
        write_secret(path, os.urandom(SECRET_BYTES + SALT_BYTES))
    secret = read_secret(path, SECRET_BYTES + SALT_BYTES)
    return secret[:SECRET_BYTES], secret[SECRET_BYTES:]


def _used(secret: Path) -> Path:
    """The file that marks that a journal has begun with this secret."""
    return secret.with_suffix(".used")


def load_assets(settings: PartySettings, keys: Keys) -> Assets:
    """Read policy, data and ids; DataError or SettingsError before anything is opened."""
    settings = PartySettings(**{**fields_of(settings), "data": without_id_check(settings)})
    place = settings.data.file or "query"
    try:
        return _assets(_with_file(settings), keys)
    except DataError as wrong:
        raise DataError(f"{settings.party}, {place}: {wrong}") from None


def without_id_check(settings: PartySettings | PartyServiceSettings) -> DataSettings:
    """The data settings; if the id rules handle empty ids, the reader lets them pass."""
    # With several keys a row may lack some.
    if settings.ids.empties == "drop" or len(settings.ids.key_columns) > 1:
        return DataSettings(**{**dict(settings.data), "empty_ids": "keep"})
    return settings.data


def _with_file(settings: PartySettings) -> PartySettings:
    """The settings with the file that a query's rows are stored in; a run queries once."""
    data = spooled(settings.data, PartyFiles(settings).spool)
    return PartySettings(**{**fields_of(settings), "data": data})


def _assets(settings: PartySettings, keys: Keys) -> Assets:
    if settings.data.file is None:
        raise SettingsError("data.file: name the file with this party's rows, or data.query")
    if len(settings.data.id_columns) != settings.ids.columns:
        raise SettingsError("ids.columns must be the number of data.id_columns")
    policy = load_settings(PartyPolicy, Path(settings.policy))
    model = read_model(Path(settings.model), settings) if settings.model else None
    files, source = PartyFiles(settings), TableFile.of(settings.data)
    space = space_of(files.state / "rows") if settings.data.on_disk else None
    allocate: Allocate = np.empty
    if space is not None:
        space.trim()  # of runs that have ended
        allocate = MappedArrays(space)
    rules = settings.data if model is None else scoring_settings(model, settings.data)
    engine = engine_of(settings.engine, allocate=allocate, space=space)
    data, ids = _rows(source, settings, rules, allocate, engine)
    secret, salt = run_secret(files.secret)
    return Assets(
        party=settings.party,
        role=settings.role,
        run=settings.run,
        policy=policy,
        data=data,
        ids=ids,
        id_rules=settings.ids,
        secret=secret,
        salt=salt,
        signing_key=keys.signing,
        verify_keys={p: contact.verify_key for p, contact in contacts(settings).items()},
        numeric_profile=numeric_profile(),
        former_keys=former_keys(Path(settings.keys), settings.party),
        kept=alignment_store.usable(
            files.alignments, settings.run, ids_digest(ids), rules_digest(settings.ids)
        ),
        kept_gram=None if model else gram_store(settings, policy, data).usable(),
        model=model,
        found=alignment_store.found(files.alignments, settings.run),
        allocate=allocate,
        engine=engine,
        wire=settings.wire,
        speaks=settings.wire_max,
    )


def gram_store(settings: PartySettings, policy: PartyPolicy, data: PreparedData) -> GramStore:
    """The store of this data set's noised X'X."""
    folder = PartyFiles(settings).statistics
    return GramStore(folder, settings.run, policy.dataset, data.column_names)


def _rows(
    source: TableFile,
    settings: PartySettings,
    rules: DataSettings,
    allocate: Allocate,
    engine: Engine,
) -> tuple[PreparedData, NormalisedIds]:
    id_rules, to_score = settings.ids, settings.model is not None
    if not rules.on_disk:
        data = prepare(source, rules, role=settings.role, to_score=to_score, engine=engine)
        return data, normalise(data.ids, id_rules)
    ids = IdCollector(id_rules, allocate)
    data = prepare_mapped(
        source,
        rules,
        allocate,
        ids.add,
        role=settings.role,
        to_score=to_score,
        engine=engine,
    )
    return data, ids.distinct()


def contacts(settings: PartySettings) -> dict[str, Contact]:
    """The peers' roles and keys."""
    return {
        peer.party: Contact(peer.role, VerifyKey(bytes.fromhex(peer.verify_key)), settings.wire)
        for peer in settings.peers
    }


def identity_of(settings: PartySettings, keys: Keys) -> Identity:
    """This party's identity in one run, with the version of the protocol that the run uses."""
    versions = settings.wire, settings.wire
    return Identity(settings.party, settings.role, settings.run, keys.signing, versions=versions)


def build_node(
    settings: PartySettings,
    own: Assets,
    keys: Keys,
    snapshot: NodeSnapshot | None = None,
    ledger: Ledger | None = None,
) -> tuple[Node, LedgerBook]:
    """Replay the journal, from a snapshot if there is one; `ledger` is open if runs share it."""
    files = PartyFiles(settings)
    files.run.mkdir(parents=True, exist_ok=True)
    shared, ledger = ledger is not None, ledger or open_ledger(files.ledger, settings.party)
    try:
        recognise(ledger, own)
    except Exception:
        if not shared:
            ledger.close_file()
        raise
    known = contacts(settings)
    book = LedgerBook(ledger, own.policy, settings.run, own.data.fingerprint, peers=known)
    write_private(_used(files.secret), b"", durable=True)
    journal = Journal(files.journal, run=settings.run, party=settings.party)
    node = Node(
        role_of(own),
        identity_of(settings, keys),
        known,
        journal=journal,
        ledger=book,
        both=BESIDE,
    )
    book.attach(own, node)
    if snapshot is not None:
        node_snapshot.resume(node, snapshot)
    node.open()
    return node, book
