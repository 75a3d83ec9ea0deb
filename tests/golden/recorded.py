"""Recorded journals: how they are made, stored and read back.

    python -m tests.golden.recorded        records them again, after a change of the format

A recording has every journal of a whole run with fixed secrets. Only guarantees that put integers
on the wire are recorded: exact values depend on the last bit of a machine's arithmetic.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import msgpack

from hdpvfl_mq.audit.evidence import Evidence, Key, StoredRecord
from hdpvfl_mq.wire.canonical import pack
from schemas.methods import ActiveSide, PassiveSide, PrivateModel
from tests.evidence import evidence_of, transcript
from tests.federation import Federation, manifest, tables

FOLDER = Path(__file__).parent
PAPER = {
    "guarantee": "paper",
    "active": ActiveSide(step_size=0.1, weight_norm=1.0),
    "passive": PassiveSide(step_size=0.1, weight_norm=1.0),
}
RUNS = {
    "sound": {"batch_rows": 20},
    "paper": {"batch_rows": 20, **PAPER},
    "private_model": {"method": PrivateModel(columns_max=8)},
}


def federation(name: str) -> Federation:
    """The federation a recording comes from, its journals still empty."""
    return Federation(manifest(wire=1, **RUNS[name]), tables(44))


def read(name: str) -> dict[str, tuple[StoredRecord, ...]]:
    """The rows of every journal of a recording."""
    plain = lzma.decompress((FOLDER / f"{name}.journals").read_bytes())
    journals = msgpack.unpackb(plain, use_list=False, raw=False)
    return {party: tuple(rows) for party, rows in journals.items()}


def recorded_evidence(name: str) -> Evidence:
    """A recording as an auditor gets it, without ledgers."""
    made = federation(name)
    keys = {p: Key(made.roles[p], bytes(k.verify_key)) for p, k in made.keys.items()}
    shown = {p: transcript(p, made.manifest.run, rows) for p, rows in read(name).items()}
    return Evidence(made.manifest.run, keys, shown)


def record(name: str) -> None:
    made = federation(name)
    made.simulate()
    assert set(made.outcomes.values()) == {"completed"}
    rows = {p: t.rows for p, t in evidence_of(made).transcripts.items()}
    (FOLDER / f"{name}.journals").write_bytes(lzma.compress(pack(rows)))


if __name__ == "__main__":
    for each in RUNS:
        record(each)
        print(each, (FOLDER / f"{each}.journals").stat().st_size, "bytes")
