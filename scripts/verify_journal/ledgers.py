"""Checks 10 and 12: ledgers, reserves and caps."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any

from .accounts import Accounts
from .formats import STATED, ZERO, linked
from .run import Run


def caps_kept(run: Run) -> None:  # 12
    for party, (role, _) in run.keys.items():
        free, room, made = 0, list[int](), list[Any]()
        for record in run.records.get(party, []):
            standing = record["input"].get("standing", {})
            free = standing.get("mu2_units_free", free)
            room = standing.get("slots_free", [] if standing else room)
            for x in [x for x in record["effects"] if x["kind"] in ("reserved", "reserve")]:
                made.append((x["mu2_units"], x.get("tau_units", 0), pure_of(x)))
                fits = x["mu2_units"] <= free and placed(made[-1][2], room)
                run.check(12, fits or not counted(run, party), party, "reserves more than was free")
        if role == "coordinator":
            run.check(12, not made, party, "reserves what it has no plan for")
        elif run.plan is not None and party in run.records and counted(run, party):
            run.check(12, made in ([], [run.plan.cost(role)]), party, "is not what the plan costs")
            sent = any(e.party == party and e.sent for e in run.releases)
            run.check(12, made or not sent, party, "releases values without a reserve")
        if run.plan is not None or run.format == "1":
            reserve_spent(run, party, made[-1] if made else (0, 0, ()))


def pure_of(amounts: Any) -> tuple[int, ...]:
    return tuple(sorted(amounts.get("pure_units", ())))


def counted(run: Run, party: str) -> bool:
    """Whether a party has itself reported the row count of the plan: nobody releases before."""
    rows = {e.body["rows"] for e in run.of("aligned") if e.sender == party}
    return run.rows in rows if run.plan is not None else run.format == "1"


def placed(wanted: tuple[int, ...], free: list[int]) -> bool:
    """Whether each pure epsilon has a slot, the largest first, in the fullest slot with room."""
    left = list(free)
    for units in sorted(wanted, reverse=True):
        holding = [(room, slot) for slot, room in enumerate(left) if room >= units]
        if not holding:
            return False
        left[min(holding)[1]] -= units
    return True


def reserve_spent(run: Run, party: str, reserve: Any) -> None:
    mu2, _, pure = reserve
    paid = run.paid(party)
    done = any((e.sender, e.round + 1) == (party, run.rounds) for e in run.releases)
    within = paid[0] <= mu2 and not Counter(paid[1]) - Counter(pure)
    # If X'X is kept from an earlier run, its part of the reserve stays unspent.
    names = {event["release_id"].split("/")[-2] for event in run.events(party)}
    kept = "moments" in names and "gram" not in names
    whole = paid == (mu2, [*pure]) or (kept and within)
    shown = party in run.records
    run.check(12, (whole if done else within) or not shown, party, "reserve")


def ledgers_hold(run: Run) -> None:  # 10 and 12
    for party, entries in run.ledgers.items():
        heads, accounts, booked = [ZERO], Accounts(), dict[str, Any]()
        for at, (number, digest, named, body, *key) in enumerate(sorted(entries), start=1):
            entry = json.loads(body)
            heads.append(linked(heads[-1] + at.to_bytes(8, "big"), body, *key))
            good = (number, digest) == (at, heads[-1])
            run.check(10, good, f"ledger of {party}", f"link {at} is broken")
            spends = entry["kind"] == "spend"
            filed = entry["event"]["release_id"] if spends else None
            run.check(10, filed == named, f"ledger of {party}", f"entry {at} has another id")
            if spends and entry["run"] == run.name:
                booked[str(filed)] = entry
            why = accounts.add(entry)
            run.check(12, not why, f"ledger of {party}", f"entry {at}: {why}")
            if entry["kind"] == "reserve" and entry["run"] == run.name:
                same_reserve(run, party, entry)
        ledger_shown(run, party, heads, booked)


def same_reserve(run: Run, party: str, entry: Any) -> None:
    pure = tuple(sorted(share["units"] for share in entry.get("pure", [])))
    held = (entry["mu2_units"], entry.get("tau_units", 0), pure)
    effects = [x for record in run.records.get(party, []) for x in record["effects"]]
    for x in [x for x in effects if x["kind"] == "reserve"]:
        same = held == (x["mu2_units"], x["tau_units"], pure_of(x))
        run.check(12, same, f"ledger of {party}", "holds another reserve of this run")


def ledger_shown(run: Run, party: str, heads: list[bytes], booked: dict[str, Any]) -> None:
    """10: what left is booked, what is booked left, and the ledger has every signed head."""
    for event in run.events(party):
        good = booked.get(event["release_id"], {}).get("event") == event
        run.check(10, good, f"ledger of {party}", f"books {event} otherwise")
    for e in [e for e in run.releases if e.sender == party]:
        entry = booked.get(e.release["release_id"], {})
        exact = e.release["event"]["mechanism"] in ("exact", "disclosed")
        stored = base64.urlsafe_b64decode(entry.get("digest", ""))
        good = exact if entry.get("keyed") else stored == run.payload(e)
        run.check(10, good, e.where, "has another payload in the ledger")
    for e in [e for e in run.of(*STATED) if e.sender == party]:
        stated = e.body[STATED[e.kind]]
        good = heads[stated["sequence"] : stated["sequence"] + 1] == [stated["digest"]]
        run.check(10, good, e.where, "states a head that the ledger does not have")
    shown = {event["release_id"] for event in run.events(party)}
    unknown = set(booked) - shown
    run.check(10, not unknown, f"ledger of {party}", f"{unknown} in no message")
