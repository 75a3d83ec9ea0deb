"""Checks 1 to 5: the evidence is whole and does not contradict itself."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

from nacl.signing import VerifyKey

from .formats import EFFECTS, ZERO, query, roots, sha, unpack
from .run import Run


def parts_hold(run: Run) -> None:  # 2: every part that a signed envelope lists is there
    for party in {e.party for e in run.envelopes if e.listed}:
        stored = dict(query(run.paths[party], "SELECT digest, part FROM parts"))
        refused = {
            record["index"]
            for record in run.records[party]
            if any(effect["kind"] == "refused" for effect in record["effects"])
        }
        for e in [e for e in run.envelopes if e.listed and e.party == party]:
            if not e.sent and e.index in refused:  # too large, or not as its list says
                run.check(6, False, e.where, f"{e.sender} lists parts that were refused")
                continue
            size, whole, total = unpack(e.frames[4])["part_bytes"], hashlib.sha256(), 0
            for at in range(0, len(e.frames[3]), 32):
                digest = e.frames[3][at : at + 32]
                part = stored.get(digest, b"")
                good = sha(b"hdpvfl-mq part 1\0", part) == digest
                run.check(2, good, e.where, f"part {at // 32} is missing or another one")
                whole.update(part)
                total += len(part)
            count = -(-e.listed // size)
            good = total == e.listed and len(e.frames[3]) == 32 * count
            run.check(2, good, e.where, "its parts are not the whole array")
            run.arrays[sha(*e.frames[3:])] = whole.digest()


def journals_hold(run: Run) -> None:  # 1, 2 and the epochs of 3
    spoken = {(e.party, e.index): e.header["epoch"] for e in run.envelopes if e.sent}
    run.check(1, run.journals, "the folder of the run", "holds no journal")
    for party, rows in run.journals.items():
        stamp = {"format": run.format, "run": run.name, "party": party}
        known, epoch, before = EFFECTS.get(run.format, "").split(), 0, ZERO
        run.check(1, rows and run.meta[party] == stamp, party, "empty, or of another run")
        records = {record["index"]: record for record in run.records[party]}
        for at, (index, stored, digest) in enumerate(rows):
            where, record = f"{party}, record {at}", records.get(at)
            run.check(1, at == index and record, where, "is missing")
            linked = sha(b"hdpvfl-mq record 1\0", stored) == digest
            if record:
                kinds = {effect["kind"] for effect in record["effects"]}
                run.check(1, kinds <= set(known), where, f"unknown effects: {kinds}")
                linked &= record["previous"] == before
                epoch += record["input"]["kind"] == "started"
                own = {record["input"].get("epoch", epoch), spoken.get((party, at), epoch)}
                run.check(3, own == {epoch}, where, "epochs do not rise by 1")
            run.check(2, linked, where, "digest or link does not hold")
            before = digest


def envelopes_hold(run: Run) -> None:  # 3 to 5
    sent: dict[Any, list[Any]] = defaultdict(list)
    received: dict[Any, list[Any]] = defaultdict(list)
    causes: dict[Any, bytes] = {}
    mine: dict[Any, bytes] = {}
    heard: dict[Any, int] = defaultdict(int)
    for e in run.envelopes:
        try:
            VerifyKey(run.keys[e.sender][1]).verify(e.digest, e.frames[1])
            good = e.sent == (e.sender == e.party) and e.header["run"] == run.name
        except Exception:  # noqa: BLE001 - no key, no signature or another one
            good = False
        run.check(3, good, e.where, f"is not signed by {e.sender} for this run")
        if not e.sent and e.kind != "ack":
            older = e.header["epoch"] < heard[e.party, e.sender]
            text = f"{e.sender} sent this from an earlier process (its epoch fell)"
            run.check(3, not older, e.where, text)
            heard[e.party, e.sender] = e.header["epoch"]
        ends = e.to if e.sent else [e.party]
        for end in ends if e.kind != "ack" else ():  # a bare acknowledgement has no number
            stream = sent[e.party, end] if e.sent else received[e.sender, end]
            stream.append(e.frames)
            run.check(5, e.to[end]["sequence"] == len(stream), e.where, "gap in a sequence")
        mine |= {(e.party, to, d["sequence"]): e.digest for to, d in e.to.items() if e.sent}
        if e.kind != "ack":
            causes.setdefault((e.party, e.index), ZERO if e.sent else e.digest)
        cause = not e.sent or e.header["parent"] == causes.get((e.party, e.index))
        run.check(5, cause, e.where, "answers another envelope")
    for (peer, party), stream in received.items():
        good = peer not in run.journals or stream == sent[peer, party][: len(stream)]
        run.check(5, good, party, f"did not receive what {peer} sent")
    heads_hold(run, mine)


def heads_hold(run: Run, mine: dict[Any, bytes]) -> None:  # 4: what was stated, and what was seen
    shown = {party: [digest for *_, digest in rows] for party, rows in run.journals.items()}
    heads = {party: [ZERO, *digests] for party, digests in shown.items()}
    rooted = {party: roots(digests) for party, digests in shown.items()}
    for e in run.envelopes:
        size, stated = e.header["size"], (e.header["head"], e.header["root"])
        if e.sender in run.journals:
            same = 0 <= size < len(heads[e.sender]) and size == (e.index if e.sent else size)
            same = same and stated == (heads[e.sender][size], rooted[e.sender][size])
            run.check(4, same, e.where, f"{e.sender} signed another journal")
        for party, d in e.to.items():
            known = mine.get((party, e.sender, d["ack"])) if d["ack"] else ZERO
            seen = party not in run.journals or d["seen"] == known
            run.check(4, seen, e.where, f"{e.sender} saw what {party} does not show")
