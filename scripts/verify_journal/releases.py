"""Checks 7 to 11: what left has its noise, its name and its price."""

from __future__ import annotations

from typing import Any

from .formats import WIDTH
from .ledgers import affordable
from .run import Envelope, Run


def releases_paid(run: Run) -> None:  # 8 to 11
    used: set[Any] = set()
    costs_agree(run)
    for e in run.releases:
        event, kind = e.release["event"], e.kind.removeprefix("score_")
        run.check(8, (e.sender, e.round) not in used, e.where, "rows leave a second time")
        used |= {(e.sender, e.round)}
        agreed = e.kind == "score_share" and run.method.get("disclosed_rows", 0) > 0
        free = {"exact": not run.sound, "disclosed": agreed}
        noised = free.get(event["mechanism"], e.noise[0] > 0)
        noised &= e.noise == run.noises(run.keys[e.sender][0])[0]
        run.check(9, noised, e.where, "another noise than before, or none")
        named, stated = f"{run.name}/{e.sender}/{kind}/{e.round}", e.release["release_id"]
        run.check(11, stated == named, e.where, f"is not named {named}")
        # It knows no bounds of values. The receiver's record begins with the name of the release.
        beyond = [x for x in run.refused.get(e.digest, []) if x.startswith(f"{stated}: ")]
        run.check(9, not beyond, e.where, "its receiver refused its values")
        pays = (event["release_id"], event["round"]) == (stated, e.round)
        run.check(10, pays, e.where, "pays for another release")
        whole = event["mechanism"] == "disclosed" or not event.get("disclosed_rows")
        run.check(9, whole, e.where, "discloses rows under another name")
    for party in run.keys if run.sound and not run.scores else ():
        run.check(9, affordable(run.manifest["budget"], *run.paid(party)), party, "cost")


def costs_agree(run: Run) -> None:  # 10: all passive parties have the same plan
    costs: dict[int, Any] = {}  # up to a round, also for a party that was left out of earlier ones
    for party in run.keys:
        mine = [e for e in run.releases if e.kind == "score_share" and e.sender == party]
        mu2 = tau = 0
        for e in sorted(mine, key=lambda e: e.round):
            event = e.release["event"]
            mu2, tau = mu2 + event["mu2_units"], tau + event.get("tau_units", 0)
            cost = (event["mechanism"], event.get("disclosed_rows"), mu2, tau)
            same = costs.setdefault(e.round, cost) == cost
            run.check(10, same, e.where, f"costs up to round {e.round} differ between parties")


def scores_answered(run: Run) -> None:  # 7 to 11, in a scoring session
    queries = {e.body["number"]: e for e in run.of("score_query")}
    once = len(queries) == len(run.of("score_query"))
    run.check(7, once and (run.scores or not queries), "score_query", "twice, or no session")
    for e in queries.values():
        array, raw = e.body["places"], e.frames[3]
        width = WIDTH[array["dtype"]]
        parts = [raw[at : at + width] for at in range(0, len(raw), width)]
        places = [int.from_bytes(part, "little", signed=True) for part in parts]
        rise = all(a < b for a, b in zip([-1, *places], [*places, run.rows], strict=True))
        run.check(7, rise, e.where, "leaves the places of the session")
    answered, noises = set[Any](), set[Any]()
    for e in run.of("score_reply"):
        number, event = e.body["number"], e.release["event"]
        query, array = queries.get(number), e.release["tensor"]
        refused = int.from_bytes(e.body["refused"], "big").bit_count()
        count = query.body["places"]["shape"][0] - refused if query else -1
        run.check(7, array["shape"] == [count + 2], e.where, "is not what its query asks for")
        run.check(8, (e.sender, number) not in answered, e.where, "answers a second time")
        answered |= {(e.sender, number)}
        noises |= {e.noise}
        if run.method.get("scores") == "noised":
            fair = e.noise[0] > 0 and event["mechanism"] == "lattice_gaussian"
            fair &= affordable(run.manifest["budget"], event["mu2_units"])
        else:
            fair = (event["mechanism"], event["disclosed_rows"]) == ("disclosed", count)
        sealed = array["dtype"] == "<i8" and len(noises) == 1
        run.check(9, fair and sealed, e.where, "unsealed, or not the noise and price")
        named = f"{run.name}/{e.sender}/score/{number}"
        stated = {e.release["release_id"], event["release_id"]}
        run.check(11, stated == {named}, e.where, f"is not named {named}")
    charges_precede(run, queries)


def charges_precede(run: Run, queries: dict[int, Envelope]) -> None:  # 10: charged, then answered
    for party, records in run.records.items():
        asked, sequence, granted = -1, 0, dict[int, bytes]()
        for record in records:
            given, where = record["input"], f"{party}, record {record['index']}"
            if given["kind"] == "charged":
                # A query whose number was used before gets nothing and has no entry of its own.
                bits = int.from_bytes(given["refused"], "big").bit_count()
                is_used = asked in queries and bits == queries[asked].body["places"]["shape"][0]
                least = sequence if is_used else sequence + 1
                grows = given["query"] == asked and given["head"]["sequence"] >= least
                run.check(10, grows, where, "an account that does not grow")
                granted[asked], sequence = given["refused"], given["head"]["sequence"]
            for x in [x for x in record["effects"] if x["kind"] == "charge"]:
                asked = x["query"]
                query = queries.get(asked)
                same = query is not None and (query.frames[3], query.body["places"]["dtype"]) == (
                    x["places"]["data"],
                    x["places"]["dtype"],
                )
                run.check(10, same, where, "charges others than its query asks for")
        for e in [e for e in run.of("score_reply") if e.sender == party]:
            good = granted.get(e.body["number"]) == e.body["refused"]
            run.check(10, good, e.where, "answers uncharged")
