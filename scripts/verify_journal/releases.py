"""Checks 7 to 11: what left has its noise, its name and its price."""

from __future__ import annotations

from typing import Any

from .accounts import fits
from .formats import WIDTH
from .run import Envelope, Run


def releases_paid(run: Run) -> None:  # 8 to 11
    used: set[Any] = set()
    for e in run.releases:
        event, kind = e.release["event"], e.kind.removeprefix("score_")
        named, stated = f"{run.name}/{e.sender}/{kind}/{e.round}", e.release["release_id"]
        run.check(11, stated == named, e.where, f"is not named {named}")
        if run.plan is None and run.format != "1":
            continue  # a plan that is not known allows no round: check 7 reports it
        run.check(8, (e.sender, e.round) not in used, e.where, "rows leave a second time")
        used |= {(e.sender, e.round)}
        noised = noise_declared(run, e) if run.plan else noise_stays(run, e)
        run.check(9, noised, e.where, "not the noise that was planned, or none")
        # It knows no bounds of values. The receiver's record begins with the name of the release.
        beyond = [x for x in run.refused.get(e.digest, []) if x.startswith(f"{stated}: ")]
        run.check(9, not beyond, e.where, "its receiver refused its values")
        pays = (event["release_id"], event["round"]) == (stated, e.round)
        run.check(10, pays, e.where, "pays for another release")
    for party in run.keys if run.plan is not None else ():
        prices_paid(run, party)
        inner_paid(run, party)
    paying = run.sound and not run.scores and (run.plan or run.format == "1")
    for party in run.keys if paying else ():
        mu2, pure = run.paid(party)
        run.check(9, fits(run.manifest["budget"], mu2, 0, pure), party, "cost")


def noise_stays(run: Run, e: Envelope) -> bool:
    """Format 1: the same noise in all releases, and none without noise in a sound run."""
    noised = not run.sound if e.release["event"]["mechanism"] == "exact" else e.noise[0] > 0
    return bool(noised and e.noise == run.noises(run.keys[e.sender][0])[0])


def noise_declared(run: Run, e: Envelope) -> bool:
    """The plan's noise under its name; exact scores are sealed."""
    assert run.plan is not None
    role, event = run.keys[e.sender][0], e.release["event"]
    due = run.plan.of(role)
    same = (*e.noise, event["mechanism"]) == (due.std, due.exponent, due.mechanism)
    same &= role != "coordinator" and event["disclosed_rows"] == due.disclosed
    exact = due.disclosed > 0 or (run.method["kind"] == "prediction" and due.infinite)
    open_ = exact and e.kind == "score_share" and e.release["tensor"]["dtype"] != "<i8"
    return bool(same and not open_)


def prices_paid(run: Run, party: str) -> None:
    """10: after each round, all releases of a party so far cost what the plan asks for."""
    assert run.plan is not None
    due, rounds = run.plan.of(run.keys[party][0]), dict[int, list[Envelope]]()
    for e in [e for e in run.releases if e.sender == party]:
        rounds.setdefault(e.round, []).append(e)
    mu2 = tau = 0
    for number, sent in sorted(rounds.items()):
        events = [e.release["event"] for e in sent]
        mu2 += sum(event["mu2_units"] for event in events)
        tau += sum(event["tau_units"] for event in events)
        pure = tuple(event["pure_units"] for event in events if event["pure_units"])
        if number < due.rounds:  # check 7 reports others
            asked = (0, 0) if due.infinite else (due.mu2[number], due.tau[number])
            text = f"pays {mu2}, {tau} and {pure}, the plan asks for {asked} and {due.pure}"
            run.check(10, (mu2, tau, pure) == (*asked, due.pure), sent[-1].where, text)


def inner_paid(run: Run, party: str) -> None:
    """10: what a party booked for itself is in the plan, at its price, once."""
    assert run.plan is not None
    seen = set[str]()
    for record in run.records.get(party, []):
        for x in [x["release"] for x in record["effects"] if x["kind"] == "book"]:
            kind, event = x["release_id"].split("/")[2], x["event"]
            noise = run.plan.inner.get(kind)
            paid = (event["mu2_units"], event["tau_units"], x["noise_std"])
            good = noise and paid == (noise.mu2[-1], noise.tau[-1], noise.std) and kind not in seen
            run.check(10, good, f"{party}, record {record['index']}", f"books {kind} otherwise")
            seen |= {kind}
    scored = any(e.sender == party and e.kind == "score_share" for e in run.releases)
    missing = scored and "moments" in run.plan.inner and "moments" not in seen
    run.check(10, not missing or party not in run.records, party, "scores without statistics")


def scores_answered(run: Run) -> None:  # 7 to 11, in a scoring session
    queries: dict[int, Envelope] = {}
    for e in run.of("score_query"):
        first = queries.setdefault(e.body["number"], e)
        run.check(7, first.frames[2:] == e.frames[2:], e.where, "asks twice under one number")
    stray = run.of("score_query", "score_reply") and not run.scores and run.manifest
    run.check(7, not stray, "score_query", "no session")
    if run.plan is None or not run.scores:
        return
    for e in queries.values():
        array, raw = e.body["places"], e.frames[3]
        width = WIDTH[array["dtype"]]
        parts = [raw[at : at + width] for at in range(0, len(raw), width)]
        places = [int.from_bytes(part, "little", signed=True) for part in parts]
        rise = all(a < b for a, b in zip([-1, *places], [*places, run.rows], strict=True))
        run.check(7, rise, e.where, "leaves the places of the session")
    answered = set[Any]()
    for e in run.of("score_reply"):
        number, event = e.body["number"], e.release["event"]
        query, array = queries.get(number), e.release["tensor"]
        query = None if query and query.body["last"] else query
        refused = int.from_bytes(e.body["refused"], "big").bit_count()
        count = query.body["places"]["shape"][0] - refused if query else -1
        run.check(7, array["shape"] == [count + 2], e.where, "is not what its query asks for")
        run.check(8, (e.sender, number) not in answered, e.where, "answers a second time")
        answered |= {(e.sender, number)}
        due = run.plan.passive
        price = (event["mechanism"], event["disclosed_rows"], event["mu2_units"])
        fair = price == (due.mechanism, array["shape"][0] - 2 if due.disclosed else 0, due.mu2[0])
        fair &= e.noise == (due.std, due.exponent) and array["dtype"] == "<i8"
        run.check(9, fair, e.where, "unsealed, or not the noise and price")
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
                run.check(10, same, where, "charges people that its query does not name")
        for e in [e for e in run.of("score_reply") if e.sender == party]:
            good = granted.get(e.body["number"]) == e.body["refused"]
            run.check(10, good, e.where, "answers uncharged")
