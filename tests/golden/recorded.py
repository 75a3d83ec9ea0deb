"""Recorded journals: how they are made, stored and read back.

    python -m tests.golden.recorded              records all again, after a change of the format
    python -m tests.golden.recorded scoring      records only those that are named

A recording has every journal of a whole run with fixed secrets. Only runs that put integers on the
wire are recorded, and weights of an earlier run are constants: exact values depend on the last bit
of a machine's arithmetic.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import msgpack
import numpy as np

from hdpvfl_mq.audit.evidence import Evidence, Key, StoredRecord
from hdpvfl_mq.wire.canonical import pack
from parties.assets import TrainedModel
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.ids import COORDINATOR
from schemas.methods import ActiveSide, PassiveSide, Prediction, PrivateModel, Scoring
from schemas.privacy import Budget
from tests.evidence import evidence_of, transcript
from tests.federation import Federation, manifest, policy, tables
from tests.simulation.scoring import Session

FOLDER = Path(__file__).parent
PAPER = {
    "guarantee": "paper",
    "active": ActiveSide(step_size=0.1, weight_norm=1.0),
    "passive": PassiveSide(step_size=0.1, weight_norm=1.0),
}
# Oblivious transfers take 160 kB with each passive party, however few rows it has.
OPRF = {
    "wire": 2,
    "passive_parties": ("shop",),
    "method": PrivateModel(columns_max=8),
    "alignment": AlignmentSpec(method="oprf", ids=IdRules(kind="integer"), rows_min=10),
}
PREDICTION = {
    "wire": 2,
    "run": "scores",
    "budget": Budget(epsilon=20.0, delta=0.01),
    "method": Prediction(model_run="test-run", weight_norm=2.0, distance=4.0),
}
SCORING = {"wire": 2, "run": "scores", "budget": None, "method": Scoring(model_run="test-run")}
RUNS = {
    "sound": {"batch_rows": 20},
    "paper": {"batch_rows": 20, **PAPER},
    "private_model": {"method": PrivateModel(columns_max=8)},
    "oprf": OPRF,
    "prediction": PREDICTION,
    "scoring": SCORING,
}
TRAINED = {"prediction": {"batch_rows": 20}, "scoring": {"method": PrivateModel(columns_max=8)}}
# Multiples of 2^-20, so scores with private weights are exact; the last of bank's is its intercept.
WEIGHTS = {
    "bank": (0.5, -0.25, 0.75, 0.125),
    "shop": (0.5, -1.0, 0.25),
    "telco": (-0.75, 0.5, 1.0),
}


def manifest_of(name: str) -> RunManifest:
    return manifest(**{"wire": 1, **RUNS[name]})


JOURNALS = tuple((name, p) for name in RUNS for p in (*manifest_of(name).parties, COORDINATOR))


def federation(name: str) -> Federation:
    """The federation a recording comes from, its journals still empty."""
    policies = {p: policy(scoring="disclosed") for p in ("shop", "telco") if name == "scoring"}
    made = Federation(manifest_of(name), tables(44), policies=policies)
    if name in TRAINED:
        made.models = {p: _model(name, made, p) for p in made.parties}
    return made


def _model(name: str, made: Federation, party: str) -> TrainedModel:
    is_private = name == "scoring" and party != "bank"
    return TrainedModel(
        manifest=manifest(**TRAINED[name]),
        data=made.data[party].settings,
        rows=41,
        dataset="people",
        weights=np.array(WEIGHTS[party]),
        weights_private=is_private,
        score_size=0.5 if is_private else 1.0,
    )


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
    if made.manifest.method.is_session:
        Session(made).run()
    else:
        made.simulate()
    assert set(made.outcomes.values()) == {"completed"}
    rows = {p: t.rows for p, t in evidence_of(made).transcripts.items()}
    (FOLDER / f"{name}.journals").write_bytes(lzma.compress(pack(rows)))


if __name__ == "__main__":
    for each in sys.argv[1:] or RUNS:
        record(each)
        print(each, (FOLDER / f"{each}.journals").stat().st_size, "bytes")
