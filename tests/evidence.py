"""Evidence for tests: from a simulated federation, forged with stolen keys, or from cheats.

A forger rewrites journals after the run; a cheat is a role that departs from the protocol while all
its journals, signatures and roots stay consistent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from hdpvfl_mq.audit.evidence import Evidence, Key, StoredRecord, Transcript
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal import parts as stored_parts
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.journal.store import TABLES
from hdpvfl_mq.machine import Effect, Input, Received, Reserve, Send
from hdpvfl_mq.node.node import NO_LEDGER, Node
from hdpvfl_mq.wire.codec import Frames, decode_header, encode_header
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from hdpvfl_mq.wire.signing import frames_digest, sign
from schemas.messages import Message
from schemas.records import GENESIS, JOURNAL_FORMAT, EnvelopeReceived, EnvelopeSent, StepRecord
from tests.federation import Federation

LEDGER_ROWS = "SELECT sequence, digest, release_id, body, opening FROM entry ORDER BY sequence"


def evidence_of(federation: Federation, *, only: Sequence[str] = (), ledgers: bool = True):
    """What an auditor of this federation is given."""
    names = only or tuple(federation.journals)
    return Evidence(
        federation.manifest.run,
        {p: Key(federation.roles[p], bytes(k.verify_key)) for p, k in federation.keys.items()},
        {
            p: replace(
                transcript(p, federation.manifest.run, federation.journals[p].records()),
                joined=federation.journals[p].joined,
            )
            for p in names
        },
        {
            p: tuple(federation.ledgers[p].execute(LEDGER_ROWS))
            for p in names
            if ledgers and p in federation.ledgers
        },
    )


def transcript(party: str, run: str, rows) -> Transcript:
    return Transcript(
        party, {"format": str(JOURNAL_FORMAT), "run": run, "party": party}, tuple(rows)
    )


def only(evidence: Evidence, *parties: str, ledgers: bool = False) -> Evidence:
    """The same evidence with fewer journals shown."""
    return Evidence(
        evidence.run,
        evidence.keys,
        {p: evidence.transcripts[p] for p in parties},
        {p: v for p, v in evidence.ledgers.items() if ledgers and p in parties},
    )


def with_rows(evidence: Evidence, party: str, rows) -> Evidence:
    """The same evidence with one journal replaced."""
    changed = replace(evidence.transcripts[party], rows=tuple(rows))
    return Evidence(
        evidence.run,
        evidence.keys,
        {**evidence.transcripts, party: changed},
        evidence.ledgers,
    )


# -- the forger -------------------------------------------------------------------------------


def relinked(records: Sequence[StepRecord], key: SigningKey | None = None) -> list[StoredRecord]:
    """Rows whose chain holds; with the owner's key its envelopes state the new journal too."""
    rows, head, tree = [], GENESIS, Tree()
    for index, record in enumerate(records):
        effects = tuple(
            EnvelopeSent(frames=restated(e.frames, head, tree, key))
            if key is not None and isinstance(e, EnvelopeSent)
            else e
            for e in record.effects
        )
        stored = chain.encode(
            StepRecord(index=index, previous=head, input=record.input, effects=effects)
        )
        head = chain.link(stored)
        tree.append(head)
        rows.append((index, stored, head))
    return rows


def restated(frames: Frames, head: bytes, tree: Tree, key: SigningKey) -> Frames:
    header = dict(decode_header(frames)) | {"head": head, "size": tree.size, "root": tree.root()}
    return resigned((encode_header(type(decode_header(frames))(**header)), *frames[1:]), key)


def resigned(frames: Frames, key: SigningKey) -> Frames:
    signature = sign(key, frames_digest(frames))
    return (frames[0], signature, *frames[2:])


def edited(record: StepRecord, **changes) -> StepRecord:
    return StepRecord(**{**dict(record), **changes})


def last_received(records: Sequence[StepRecord], sender: str) -> int:
    """The index of the last record that came from a peer."""
    return max(
        record.index
        for record in records
        if isinstance(record.input, EnvelopeReceived)
        and decode_header(record.input.frames).sender == sender
    )


# -- the cheat --------------------------------------------------------------------------------


@dataclass
class Cheat:
    """A role that says something else than it should, or hears something else than was said."""

    role: Any
    says: Callable[[Effect], Sequence[Effect]] = lambda effect: (effect,)
    hears: Callable[[Message], Message] = lambda message: message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.role, name)

    def step(self, state: Any, given: Input):
        if isinstance(given, Received):
            given = Received(given.sender, self.hears(given.message))
        state, effects = self.role.step(state, given)
        return state, tuple(said for effect in effects for said in self.says(effect))


class BlindBook:
    """A ledger that books nothing and allows everything."""

    def standing(self):
        rooms = {"mu2_units_free": 2**60, "slots_free": (2**50, 2**50)}
        return replace_model(NO_LEDGER, is_reserved=True, **rooms)

    def heads(self):
        return (NO_LEDGER.head,)

    def has_heads(self, heads: Any) -> bool:
        return True

    def reserve(self, reservation: Reserve) -> None: ...

    def booking(self, releases: Sequence[Any]):
        return lambda: None

    def book_again(self, releases: Sequence[Any]) -> None: ...

    def charge_again(self, record: Any) -> None: ...

    def remember(self, *_: Any) -> None: ...

    def check_restored(self, *_: Any) -> None: ...


@dataclass
class CheatingFederation(Federation):
    """Parties with changed roles and no ledgers."""

    cheats: dict[str, dict[str, Callable]] = field(default_factory=dict)

    def node(self, party: str) -> Node:
        node = super().node(party)
        book = None if party == "coordinator" else BlindBook()
        role = Cheat(node.role, **self.cheats.get(party, {}))
        return Node(
            role, node.identity, self.contacts(party), journal=self.journals[party], ledger=book
        )


def replace_model(model: Any, **changes) -> Any:
    """A validated copy of a schema with other fields."""
    return type(model)(**{**dict(model), **changes})


def saying(kind: str, change: Callable[[Message], Message]) -> Callable[[Effect], Sequence[Effect]]:
    """Change every message of a kind on its way out."""

    def says(effect: Effect) -> Sequence[Effect]:
        if isinstance(effect, Send) and effect.message.kind == kind:
            return (Send(effect.to, change(effect.message)),)
        return (effect,)

    return says


def hearing(kind: str, change: Callable[[Message], Message]) -> Callable[[Message], Message]:
    """Change every message of a kind before the role sees it."""
    return lambda message: change(message) if message.kind == kind else message


# -- files ------------------------------------------------------------------------------------


def _write_parts(database: sqlite3.Connection, shown: Transcript) -> None:
    for frames in (e.frames for e in shown.envelopes if e.message and is_in_parts(e.frames)):
        parts, array = PartList.of_frames(frames), shown.array_of(frames)
        stored = [(parts.digests[n], bytes(parts.cut(array, n))) for n in range(len(parts))]
        stored_parts.keep(database, stored)


@contextmanager
def _file(path: Path) -> Iterator[sqlite3.Connection]:
    """A new database; nobody waits for the disk, since no test of evidence cuts the power."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        yield database
        database.commit()


def write_run(evidence: Evidence, folder: Path) -> Path:
    """The evidence as the files of a run; returns the run's folder."""
    run = folder / evidence.run
    for party, shown in evidence.transcripts.items():
        (run / party).mkdir(parents=True)
        with _file(run / party / "journal.db") as database:
            for statement in TABLES:
                database.execute(statement)
            database.executemany("INSERT INTO meta VALUES (?, ?)", shown.meta.items())
            database.executemany("INSERT INTO records VALUES (?, ?, ?)", shown.rows)
            database.commit()
            _write_parts(database, shown)
    for party, entries in evidence.ledgers.items():
        with _file(run / party / "ledger.db") as database:
            columns = "sequence INTEGER, digest, release_id, body, opening"
            database.execute(f"CREATE TABLE entry ({columns})")
            database.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", entries)
    (run / "settings").mkdir(parents=True)
    (run / "settings" / "members.toml").write_text(
        "".join(
            f'[[members]]\nparty = "{p}"\nrole = "{k.role}"\nverify_key = "{k.verify_key.hex()}"\n'
            for p, k in evidence.keys.items()
        )
    )
    return run
