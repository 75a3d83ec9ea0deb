"""Checks 10 and 12: ledgers, reserves and caps."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, defaultdict
from typing import Any

from .formats import STATED, ZERO, linked
from .run import Run


def affordable(budget: Any, mu2_units: int, pure: Any = ()) -> bool:
    """Whether mu^2 in units of 2^-40, beside pure epsilons in such units, is (epsilon, delta)."""
    mu, losses = math.sqrt(max(mu2_units, 1) * 2.0**-40), {0: 1.0}
    for units in pure:
        after: dict[int, float] = defaultdict(float)
        for loss, chance in losses.items():
            for sign in (1, -1):  # loss of randomised response, the worst pure mechanism
                after[loss + sign * units] += chance / (1 + math.exp(-sign * units * 2.0**-40))
        grid = -(-2 * max(after) // 4096) or 1  # rounds losses up to a grid of limited size
        losses = defaultdict(float)
        for loss, chance in after.items():
            losses[-(-loss // grid) * grid if len(after) > 4096 else loss] += chance
    delta = 0.0
    for loss, chance in losses.items():
        epsilon = budget["epsilon"] - loss * 2.0**-40
        above, below = (math.erfc((epsilon / mu + s * mu / 2) / math.sqrt(2)) / 2 for s in (-1, 1))
        delta += chance * (above - math.exp(epsilon) * below if below else above)
    return bool(delta <= budget["delta"] * (1 + 1e-9))


def caps_kept(run: Run) -> None:  # 12
    reserves = ("reserved", "reserve")  # in format 1 and 2
    for party, records in run.records.items():
        free, room, mu2, pure = 0, list[int](), 0, list[int]()
        for record in records:
            standing = record["input"].get("standing", {})
            free = standing.get("mu2_units_free", free)
            room = standing.get("slots_free", [] if standing else room)
            for x in [x for x in record["effects"] if x["kind"] in reserves]:
                mu2, pure = x["mu2_units"], sorted(x.get("pure_units", []))
                fits = mu2 <= free and sum(pure) <= sum(room)
                fits &= max([0, *pure]) <= max([0, *room])
                run.check(12, fits, party, "reserves more than was free")
        paid = run.paid(party)
        done = any((e.sender, e.round + 1) == (party, run.rounds) for e in run.releases)
        within = paid[0] <= mu2 and not Counter(paid[1]) - Counter(pure)
        # If X'X is kept from an earlier run, its part of the reserve stays unspent.
        names = {event["release_id"].split("/")[-2] for event in run.events(party)}
        kept = "moments" in names and "gram" not in names
        whole = paid == (mu2, pure) or (kept and within)
        run.check(12, whole if done else within, party, "reserve")


def ledgers_hold(run: Run) -> None:  # 10 and 12
    for party, entries in run.ledgers.items():
        heads, payloads = [ZERO], dict[str, Any]()
        head, caps, held = ZERO, dict[str, Any](), dict[Any, tuple[int, Any]]()
        booked: dict[Any, dict[str, Any]] = defaultdict(dict)
        reserved: dict[Any, list[Any]] = defaultdict(list)
        for at, (number, digest, _, body, *key) in enumerate(sorted(entries), start=1):
            entry, head = json.loads(body), linked(head + at.to_bytes(8, "big"), body, *key)
            heads.append(head)
            good = (number, digest) == (at, head)
            run.check(10, good, f"ledger of {party}", f"link {at} is broken")
            if entry["kind"] in ("secret", "apart", "people"):
                continue
            name, own = entry["dataset"], booked[entry.get("run")]
            if entry["kind"] == "cap":
                caps[name] = (entry["cap"], entry.get("pure_slots", []))
            if entry["kind"] == "spend":
                payloads[entry["event"]["release_id"]] = entry
                own[entry["event"]["release_id"]] = (entry["event"], entry.get("slot"))
            spent = sum(event["mu2_units"] for event, _ in own.values())
            used = [(slot, e["pure_units"]) for e, slot in own.values() if e.get("pure_units")]
            if entry["kind"] in ("reserve", "close"):
                shares = [(x["slot"], x["units"]) for x in entry.get("pure", [])]
                mine = shares if entry["kind"] == "reserve" else used
                held[name, entry["run"]] = (entry.get("mu2_units", spent), mine)
                reserved[entry["run"]] = shares or reserved[entry["run"]]
            taken = Counter(used) - Counter(reserved[entry.get("run")])
            run.check(12, not taken, party, f"entry {at} takes a slot that is not reserved")
            cap, slots = caps[name]  # every slot counts in full, used or not
            parts = [part for (owner, _), part in held.items() if owner == name]
            good = affordable(cap, sum(mu2 for mu2, _ in parts), slots)
            good &= slots_hold(slots, [share for _, shares in parts for share in shares])
            run.check(12, good, party, f"entry {at} is above the cap")
        ledger_shown(run, party, heads, booked[run.name], payloads)


def slots_hold(slots: list[int], shares: list[Any]) -> bool:
    filled: Counter[int] = Counter()
    for slot, units in shares:
        filled[slot] += units
    return all(slot < len(slots) and units <= slots[slot] for slot, units in filled.items())


def ledger_shown(
    run: Run, party: str, heads: list[bytes], booked: dict[str, Any], payloads: dict[str, Any]
) -> None:  # 10: what left is booked, what is booked left, and the ledger has every signed head
    for event in run.events(party):
        good = booked.get(event["release_id"], [None])[0] == event
        run.check(10, good, f"ledger of {party}", f"books {event} otherwise")
    for e in [e for e in run.releases if e.sender == party]:
        entry = payloads.get(e.release["release_id"], {"keyed": True})
        stored = base64.urlsafe_b64decode(entry.get("digest", ""))
        good = entry.get("keyed") or stored == run.payload(e)
        run.check(10, good, e.where, "has another payload in the ledger")
    for e in [e for e in run.of(*STATED) if e.sender == party]:
        stated = e.body[STATED[e.kind]]
        good = heads[stated["sequence"] : stated["sequence"] + 1] == [stated["digest"]]
        run.check(10, good, e.where, "states a head that the ledger does not have")
    shown = {event["release_id"] for event in run.events(party)}
    unknown = set(booked) - shown
    run.check(10, not unknown, f"ledger of {party}", f"{unknown} in no message")
