"""The time that one release of 3200 values takes, by part: noise, ledger, signature, journal.

It owns the timing; every part is production code, with ledger and journal on disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from nacl.signing import SigningKey

from hdpvfl_mq.app.demo.rehearsal import open_policy
from hdpvfl_mq.arrays.unreleased import Unreleased
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.recommend import sound_descent
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.runtime.beside import BESIDE
from hdpvfl_mq.wire.codec import Frames, encode_body, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from parties.process.ledger_book import LedgerBook
from parties.process.ledger_file import open_ledger
from schemas.config import RunManifest
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION, Delivery, Header
from schemas.messages import ScoreShare
from schemas.methods import Descent
from schemas.model import LossSpec
from schemas.privacy import Budget, Release
from schemas.records import GENESIS, EnvelopeReceived, EnvelopeSent, StepRecord
from scripts.benches.row import Row, times

VALUES, COUNT = 3200, 200


def _each(work: Callable[[int], object], count: int = COUNT) -> float:
    """Median time of one call in milliseconds."""
    taken = []
    for number in range(count):
        began = time.perf_counter()
        work(number)
        taken.append(time.perf_counter() - began)
    return 1e3 * float(np.median(taken))


def release_cost() -> list[Row]:
    """One row for each part, as a share of the whole and relative to plain normal noise."""
    budget = Budget(epsilon=1.0, delta=0.01)
    base = sound_descent("bench", ("active", ("passive-1",)), budget, LossSpec(name="logistic"))
    method = Descent(**{**dict(base.method), "epochs": COUNT})
    manifest = RunManifest(**{**dict(base), "method": method})
    with tempfile.TemporaryDirectory() as folder:
        parts = _parts(manifest, Path(folder))
    dice, total = np.random.default_rng(0), sum(parts.values())
    plain = _each(lambda _: dice.normal(size=VALUES))
    rows = [
        Row(
            f"one release of {VALUES} values",
            f"{total:.3f} ms",
            f"numpy normal {plain:.3f} ms",
            times(total, plain),
            key="release",
            value=total,
        )
    ]
    return rows + [
        Row(f"  {part}", f"{ms:.3f} ms", f"{100 * ms / total:.0f} % of it")
        for part, ms in parts.items()
    ]


def _parts(manifest: RunManifest, folder: Path) -> dict[str, float]:
    noise = plan_run(manifest, VALUES).noise_of("passive")
    mechanism = Mechanism("passive-1", manifest.run, os.urandom(32), {"share": noise})
    scores = Unreleased(np.random.default_rng(0).normal(size=VALUES) / 10)
    releases: list[Release] = []

    def noised(number: int) -> None:
        release = mechanism.release(scores, "share", number, b"", last_round=number - 1)
        releases.append(release)

    parts = {"noise": _each(noised)}
    ledger = open_ledger(folder / "ledger.db", "passive-1")
    ledger_book = LedgerBook(ledger, open_policy(manifest), manifest.run, bytes(32))
    spent = noise.spent
    ledger_book.reserve(Reserve(mu2_units=spent.mu2_units, tau_units=spent.tau_units, exact=False))
    key, envelopes = SigningKey.generate(), list[Frames]()

    def signed(number: int) -> None:
        envelopes.append(_envelope(manifest.run, releases[number], number, key))

    parts["packing and signature"] = _each(signed)
    journal = Journal(folder / "journal.db", run=manifest.run, party="passive-1")

    def durable(number: int) -> None:
        booking = ledger_book.booking([releases[number]])
        BESIDE(booking, lambda: _journaled(journal, envelopes[number], number))

    parts["ledger and journal, synced at the same time"] = _each(durable)
    return parts


def _envelope(run: str, release: Release, number: int, key: SigningKey) -> Frames:
    to = (Delivery(party="active", sequence=number + 1, ack=0, seen=NO_PARENT),)
    header = encode_header(
        Header(
            version=PROTOCOL_VERSION,
            run=run,
            sender="passive-1",
            epoch=1,
            kind="score_share",
            to=to,
            parent=NO_PARENT,
            head=GENESIS,
            size=0,
            root=GENESIS,
        )
    )
    body, arrays = encode_body(
        ScoreShare(round=number, orders=1, orders_digest=GENESIS, release=release)
    )
    return (header, sign(key, envelope_digest(header, body, arrays)), body, *arrays)


def _journaled(journal: Journal, frames: Frames, number: int) -> None:
    """Journal a step that receives as many bytes as it sends, as in a round."""
    record = StepRecord(
        index=number,
        previous=GENESIS,
        input=EnvelopeReceived(frames=frames),
        effects=(EnvelopeSent(frames=frames),),
    )
    stored = chain.encode(record)
    journal.commit([(number, stored, chain.link(stored))])
