"""One run as its journals show it: envelopes, records, manifest and what was found.

It reads; the checks are in the other modules.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from nacl.signing import VerifyKey

from .formats import UNREADABLE, ZERO, query, sha, unpack
from .prices import Plan, plan_of

# Settings of a run, of a party's service, and keys that a service keeps beside its journal.
KEY_FILES = ("settings/*.toml", "*/settings.toml", "*/members.toml")


def planned(manifest: Any, rows: int) -> Plan | None:
    try:
        return plan_of(manifest, rows)
    except (ValueError, KeyError, TypeError, AttributeError):  # no party may train with these
        return None


class Envelope:
    def __init__(self, party: str, index: int, sent: bool, frames: list[bytes]) -> None:
        self.where, self.party, self.index = f"{party}, record {index}", party, index
        self.sent, self.frames, self.header = sent, frames, unpack(frames[0])
        signed = [x for f in (frames[0], *frames[2:]) for x in (len(f).to_bytes(8, "big"), f)]
        self.digest = sha(b"hdpvfl-mq envelope 1\0", *signed)
        self.sender, self.kind = self.header["sender"], self.header["kind"]
        # The first delivery to a party counts; check 6 reports a second one.
        self.to = {d["party"]: d for d in reversed(self.header["to"])}
        self.body = body_of(frames[2])
        self.round, self.release = self.body.get("round"), self.body.get("release", {})
        # A large array is five frames: the digests of its parts and their sizes stand for it.
        self.listed = unpack(frames[4])["bytes"] if len(frames) == 5 else 0
        self.noise = (self.release.get("noise_std"), self.release.get("exponent"))


def body_of(frame: bytes) -> Any:
    """The fields of a message; none if it has no such form, which check 6 reports."""
    try:
        body = unpack(frame)
    except Exception:  # noqa: BLE001 - a peer may have sent anything
        return {}
    return body if type(body) is dict and type(body.get("release", {})) is dict else {}


class Run:
    def __init__(self, folder: Path, ledgers: Path | None, members: Path | None) -> None:
        self.name = folder.resolve().name
        self.journals: dict[str, list[Any]] = {}
        self.meta: dict[str, dict[str, str]] = {}
        self.ledgers: dict[str, list[Any]] = {}
        self.keys: dict[str, tuple[str, bytes]] = {}
        self.records: dict[str, list[Any]] = defaultdict(list)
        self.envelopes: list[Envelope] = []
        self.paths: dict[str, Path] = {}
        self.arrays: dict[bytes, bytes] = {}  # digest of a list of parts: sha256 of the array
        self.found: dict[int, str] = {}
        self.refused: dict[bytes, list[str]] = {}  # what receivers say of envelopes they refused
        self.unread: dict[bytes, str] = {}  # envelopes whose receiver could not read them, and why
        beside = [x for name in KEY_FILES for x in folder.glob(name)]
        self.read_keys([members] if members else sorted(beside))
        self.read_journals(folder, ledgers or folder)
        own_first: dict[bytes, Envelope] = {}
        for e in sorted(self.envelopes, key=lambda e: not e.sent):
            own_first.setdefault(e.digest, e)
        self.said = list(own_first.values())
        offers = self.of("run_offer")
        self.manifest = offers[0].body["manifest"] if offers else {}
        # The manifest is the last field of its message: its bytes are the rest of the body.
        self.manifest_digest = sha(*[o.frames[2].split(b"\xa8manifest", 1)[1] for o in offers[:1]])
        self.format = min((meta.get("format", "") for meta in self.meta.values()), default="")
        stated = dict.fromkeys((e.sender, e.body["rows"]) for e in self.of("aligned"))
        counts = [rows for rows, _ in Counter(rows for _, rows in stated).most_common()]
        plans = (planned(self.manifest, rows) for rows in counts if self.format == "2")
        # A liar may report another count, from which no plan follows or one that takes hours.
        self.plan = next((plan for plan in plans if plan is not None), None)
        self.rows = self.plan.rows if self.plan is not None else max(counts, default=0)
        # In format 1 a method is a name, and its constants are fields of the manifest.
        method = self.manifest.get("method", {})
        self.method = {**self.manifest, "kind": method} if self.format == "1" else method
        self.descends = self.method.get("kind") == "descent"
        batch = self.method["batch_rows"] if self.descends else self.rows
        self.batches = -(-self.rows // max(1, min(batch, self.rows)))  # of an epoch
        self.rounds = self.batches * self.method.get("epochs", 1)
        self.releases = self.of("score_share", "residual")
        self.sound = self.manifest.get("guarantee") == "sound"
        self.scores = self.method.get("kind") == "scoring"

    def batch_rows(self, number: int) -> int:
        # Computed one at a time: a liar may claim 2**31 rows.
        i, r = number % max(1, self.batches), max(1, self.batches)
        return (i + 1) * self.rows // r - i * self.rows // r

    def read_keys(self, files: list[Path]) -> None:
        for file in files:
            table = tomllib.loads(file.read_text())
            for m in [*table.get("members", []), *table.get("peers", [])]:
                key = (m["role"], bytes.fromhex(m["verify_key"]))
                if self.keys.setdefault(m["party"], key) != key:
                    raise ValueError(f"{file} gives {m['party']} another key or role")

    def read_journals(self, folder: Path, ledgers: Path) -> None:
        for path in sorted(folder.glob("*/journal.db")):
            party, ledger = path.parent.name, ledgers / path.parent.name / "ledger.db"
            self.journals[party] = query(path, "SELECT idx, record, digest FROM records ORDER BY 1")
            self.meta[party] = dict(query(path, "SELECT key, value FROM meta"))
            if ledger.exists():
                self.ledgers[party] = query(ledger, "SELECT * FROM entry")
            for index, stored, _ in self.journals[party]:
                self.parse(party, index, stored)
            self.paths[party] = path

    def parse(self, party: str, index: int, stored: bytes) -> None:
        try:
            record = unpack(stored)
            self.records[party].append(record)
            steps = [(False, record["input"]), *((True, effect) for effect in record["effects"])]
            both = [(sent, x["frames"]) for sent, x in steps if "frames" in x]
            self.envelopes += (made := [Envelope(party, index, *one) for one in both])
            reasons = [x["reason"] for x in record["effects"] if x["kind"] == "refused"]
            why = next((reason for reason in reasons if reason.startswith(UNREADABLE)), "")
            self.unread |= {e.digest: why for e in made if why and not e.sent}
            self.refused |= {e.digest: reasons for e in made if reasons and not e.sent}
        except Exception as broken:  # noqa: BLE001 - whatever cannot be read is a flaw
            self.check(1, False, f"{party}, record {index}", f"cannot be read: {broken}")

    def check(self, number: int, holds: Any, where: str, text: str) -> None:
        if not holds:
            self.found.setdefault(number, f"{where}: {text}")

    def signed(self, e: Envelope) -> bool:
        try:
            VerifyKey(self.keys[e.sender][1]).verify(e.digest, e.frames[1])
        except Exception:  # noqa: BLE001 - no key, no signature or another one
            return False
        return bool(e.header["run"] == self.name)

    def fault(self, party: str, *shown: Envelope) -> str:  # named by what it signed itself
        signed = all(e.sender == party and self.signed(e) for e in shown)
        return f"; at fault: {party}" if signed else ""

    def of(self, *kinds: str) -> list[Envelope]:
        read = [e for e in self.said if e.digest not in self.unread]
        return [e for e in read if e.kind in kinds and e.body.get("kind") == e.kind]

    def noises(self, role: str) -> list[tuple[Any, Any]]:
        return [e.noise for e in self.releases if self.keys[e.sender][0] == role]

    def events(self, party: str) -> list[Any]:  # what left, and what stayed but is charged
        effects = [effect for record in self.records.get(party, []) for effect in record["effects"]]
        kept = [effect["release"]["event"] for effect in effects if effect["kind"] == "book"]
        return [e.release["event"] for e in self.releases if e.sender == party] + kept

    def paid(self, party: str) -> tuple[int, list[int]]:  # units of mu^2, pure epsilons
        events = self.events(party)
        pure = sorted(event.get("pure_units", 0) for event in events)
        return sum(event["mu2_units"] for event in events), [units for units in pure if units]

    def payload(self, e: Envelope) -> bytes:  # sha256 of the array
        return self.arrays.get(sha(*e.frames[3:]), ZERO) if e.listed else sha(*e.frames[3:])
