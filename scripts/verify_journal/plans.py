"""Checks 6, 7 and 13: legal messages, and the rounds that the manifest plans."""

from __future__ import annotations

import math
from typing import Any

from .echoes import echoes_hold
from .formats import ENDINGS, FINISH, METHODS, ROUTES, WIDTH, sha
from .run import Run


def messages_legal(run: Run) -> None:  # 6 and 13
    first: dict[str, Any] = {}
    for e in run.said:
        why = run.unread.get(e.digest, "")
        run.check(6, not why, e.where, f"{e.kind} of {e.sender} was refused: {why}")
        if why:
            continue
        mine, *theirs = (run.keys.get(p, "?")[0][0] for p in (e.sender, *e.to))
        may_send, may_receive = ROUTES.get(e.kind, ("", ""))
        legal = mine in may_send and set(theirs) <= set(may_receive)
        legal &= len(e.to) == len(e.header["to"]) and e.body.get("kind") == e.kind
        arrays = [x for part in (e.body, e.release) for x in part.values() if type(x) is dict]
        sizes = [math.prod(x["shape"]) * WIDTH[x["dtype"]] for x in arrays if "dtype" in x]
        legal &= sizes == [e.listed or len(frame) for frame in e.frames[3:4]]
        field, words = ENDINGS.get(e.kind, ("kind", e.kind))
        legal &= e.body.get(field) in words.split()
        run.check(6, legal, e.where, f"{e.sender} may not send such a {e.kind}")
        if e.kind == "hello":
            kept = tuple(v for k, v in e.body.items() if k not in ("epoch", "ledger"))
            run.check(13, first.setdefault(e.sender, kept) == kept, e.where, "another seed")
            run.check(13, e.body["epoch"] == e.header["epoch"], e.where, "another epoch")
    run.check(13, len(set(first.values())) == len(first), "hello", "two share a seed")


def plan_digest(run: Run, stated: bytes) -> bytes:
    """The digest of the plan; of format 1 from the noise that both sides declare, if shown."""
    if run.plan is not None:
        return run.plan.digest(run.manifest_digest)
    sides = [side for role in ("active", "passive") for side in run.noises(role)[:1]]
    if not run.descends or len(sides) < 2:
        return stated
    clip = run.method["passive"]["received_clip"] * sides[0][0] if run.sound else math.inf
    parts = [*((*side, run.rounds) for side in sides), (run.rows, clip)]
    return sha(b"hdpvfl-mq plan 1\0", run.manifest_digest, *(repr(x).encode() for x in parts))


def one_manifest(run: Run) -> None:  # 7
    m, offers = run.manifest, run.of("run_offer")
    for e in offers:
        same = sha(e.frames[2].split(b"\xa8manifest", 1)[1]) == run.manifest_digest
        if not same or m["run"] != run.name:
            shown = (e,) if same else (offers[0], e)
            run.check(7, False, e.where, f"offers another manifest{run.fault(e.sender, *shown)}")
    names = {m["active_party"]: "active", "coordinator": "coordinator"}
    names |= dict.fromkeys(m["passive_parties"], "passive")
    same = names == {p: role for p, (role, _) in run.keys.items()} and m["run"] == run.name
    stated = {e.body["manifest_digest"] for e in run.of("run_accept")}
    run.check(7, same and stated <= {run.manifest_digest}, "manifest", "members or run")


def plan_followed(run: Run) -> None:  # 7
    plans, planned = run.of("round_plan"), 0
    if not run.manifest:
        return
    one_manifest(run)
    limits = run.manifest["alignment"]
    for e in run.of("aligned"):
        within = max(1, limits["rows_min"]) <= e.body["rows"] <= limits["rows_max"]
        run.check(7, within, e.where, f"{e.sender} reports common rows outside the limits")
    if not plans:
        return
    if not run.of("aligned") or (run.format == "2" and run.plan is None):
        run.check(7, False, plans[0].where, "allows rounds before the common rows are known")
        return
    named = run.method["kind"] in METHODS[run.format].split()
    run.check(7, named, "manifest", "is of another method or format")
    echoes_hold(run)
    digest = plan_digest(run, plans[0].body["plan_digest"])
    for e in plans:
        follows = (e.body["first"], e.body["plan_digest"]) == (planned, digest)
        follows &= planned < e.body["last"] <= run.rounds
        run.check(7, follows, e.where, "is not the manifest's plan")
        planned = e.body["last"]
    for e in run.of("aligned"):
        plan = (e.body["rows"], e.body["rounds"], e.body["plan_digest"])
        run.check(7, plan == (run.rows, run.rounds, digest), e.where, "another plan")
    for e in run.of("round_report"):
        run.check(7, e.body["rounds_done"] <= planned, e.where, "reports more rounds than allowed")
    sizes_planned(run, planned)
    if run.method["kind"] not in ("prediction", "scoring") and not run.method.get("early_stop"):
        rounds_done(run)


def sizes_planned(run: Run, planned: int) -> None:  # 7: every release has its number of rows
    for e in run.releases:
        size = run.batch_rows(e.round)
        held, shown = (run.method.get(x, 0) for x in ("held_out_rows", "disclosed_rows"))
        if e.kind == "residual" or shown:  # of rows that are learnt from; of agreed rows
            size -= held
        if e.kind == "score_share" and shown:
            size = min(shown, size) + held
        exact = e.release["event"]["mechanism"] == "disclosed" or run.method["kind"] == "prediction"
        if exact and not e.noise[0] and run.format != "1":
            size += 2  # the tag of a seal
        count = e.release["tensor"]["shape"] == [size]
        run.check(7, count and e.round < planned <= run.rounds, e.where, "not planned")


def rounds_done(run: Run) -> None:  # 7: a completed run had all its rounds
    for party, records in run.records.items():
        ends = [x.get("outcome") for r in records for x in r["effects"] if x["kind"] in FINISH]
        heard = [e for e in run.envelopes if e.party == party and e.kind == "residual"]
        enough = len({e.round for e in heard}) == run.rounds or party == "coordinator"
        run.check(7, enough or "completed" not in ends, party, "completed without its rounds")
