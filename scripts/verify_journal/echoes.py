"""Part of check 7: all had the same orders and residuals, and echoed what they had."""

from __future__ import annotations

from functools import reduce
from itertools import combinations, pairwise, takewhile

from .formats import sha
from .run import Envelope, Run

ORDERS = ("round_plan", "resume")
TERMS = ("manifest", "members", "toss", "order", "plan")


def stream(run: Run, party: str) -> list[Envelope]:
    """All that the coordinator sent to a party, by its own journal or by the coordinator's."""
    if party in run.journals:
        received = [e for e in run.envelopes if e.party == party and not e.sent]
        return [e for e in received if e.sender == "coordinator" and e.kind != "ack"]
    return [e for e in run.envelopes if e.party == "coordinator" and e.sent and party in e.to]


def whole(envelopes: list[Envelope], party: str) -> bool:
    """Whether none of them is left out: places of orders count only then."""
    numbers = [e.to[party]["sequence"] for e in envelopes if party in e.to]
    return numbers == list(range(1, len(envelopes) + 1))


def told(run: Run, party: str) -> list[Envelope]:
    """All orders to a party."""
    return [e for e in stream(run, party) if e.kind in ORDERS]


def refused(run: Run, party: str, *, early: bool = False) -> set[int]:
    """Records whose message was refused; with `early`, those that refuse one that came early."""
    effects = [(r["index"], x) for r in run.records[party] for x in r["effects"]]
    reasons = [(index, x["reason"]) for index, x in effects if x["kind"] == "refused"]
    return {index for index, reason in reasons if (", early: " in reason) == early}


def taken(run: Run, party: str, orders: list[Envelope]) -> list[Envelope]:
    """Orders that a party must have taken; nothing if that is not certain."""
    if party in run.journals:
        without = refused(run, party)
        return [e for e in orders if e.index not in without]
    # A number that it acknowledged is not enough: another envelope may be shown under it.
    signed = [e for e in run.said if e.sender == party and run.signed(e)]
    mine = [e for e in signed if "coordinator" in e.to]
    named = {e.header["parent"] for e in signed} | {e.to["coordinator"]["seen"] for e in mine}
    ready = [e.to["coordinator"]["ack"] for e in mine if e.kind == "aligned"]
    sent = stream(run, party)
    if not ready or not whole(sent, party) or not legal(run, orders):
        return []
    later = takewhile(lambda e: e.digest in named, sent[ready[0] :])
    return [e for e in later if e.kind in ORDERS]


def legal(run: Run, orders: list[Envelope]) -> bool:
    planned, digests = 0, {e.body["plan_digest"] for e in run.of("aligned")}
    for order in orders:
        if order.kind == "resume":
            if not planned or (order.body["absent"] and run.manifest["absence"] == "wait"):
                return False
            continue
        first, last, digest = (order.body[x] for x in ("first", "last", "plan_digest"))
        if {digest} != digests or first != planned or not first < last <= run.rounds:
            return False
        planned = last
    return True


def echoes_hold(run: Run) -> None:
    parties = [party for party, (role, _) in run.keys.items() if role != "coordinator"]
    orders = {party: told(run, party) for party in parties}
    for one, other in combinations(parties, 2):
        for mine, theirs in zip(orders[one], orders[other], strict=False):
            if mine.frames[2] != theirs.frames[2]:
                certain = all(whole(stream(run, party), party) for party in (one, other))
                both = (*stream(run, one), *stream(run, other))  # a forged one may hide an order
                fault = run.fault("coordinator", *both) if certain else ""
                text = f"coordinator told {one} and {other} different orders{fault}"
                run.check(7, False, theirs.where, text)
    for party in parties:
        orders_echoed(run, party, taken(run, party, orders[party]))
    residuals_reported(run, [party for party in parties if party in run.journals])


def orders_echoed(run: Run, party: str, orders: list[Envelope]) -> None:
    terms = [e for e in run.of("agreement") if e.sender == party]
    if not terms or not orders:
        return
    agreed = sha(b"hdpvfl-mq agreement 1\0", *(terms[0].body[name] for name in TERMS))
    links = [sha(b"hdpvfl-mq orders 1\0", agreed)]
    for order in orders:
        links.append(sha(links[-1], sha(order.frames[2])))
    shares = [e for e in run.of("score_share") if e.sender == party and "orders" in e.body]
    for e in shares:
        echo = (e.body["orders"], e.body["orders_digest"])
        if echo[0] < len(links) and echo[1] != links[echo[0]]:
            # The manifest says which orders are legal: the party must have agreed to this one.
            same = terms[0].body["manifest"] == run.manifest_digest
            fault = run.fault(party, terms[0], e) if same else ""
            text = f"echoes orders that differ from those it was told{fault}"
            run.check(7, False, e.where, text)


def residuals_reported(run: Run, parties: list[str]) -> None:
    """From the parties' own journals: no other says which residuals they refused."""
    releases: dict[str, list[bytes]] = {}
    reports: dict[str, list[Envelope]] = {}
    for party in parties:
        active, without = run.keys[party][0] == "active", refused(run, party)
        own = [e for e in run.envelopes if e.party == party and e.kind == "residual"]
        heard = [e for e in own if e.sent == active and (active or e.index not in without)]
        named = [(e.release["release_id"].encode(), run.payload(e)) for e in heard]
        releases[party] = [name + b"\0" + digest for name, digest in named]
        stated = [e for e in run.envelopes if e.party == party and e.sent]  # in its own order
        stated = [e for e in stated if e.kind == e.body.get("kind") == "round_report"]
        stated = [] if refused(run, party, early=True) else stated
        stated = [e for e in stated if "residuals" in e.body]  # not in format 1
        reports[party] = [e for e in stated if e.body["residuals"] <= len(heard)]
        for before, e in pairwise(reports[party]):
            same = after(before, releases[party], e.body["residuals"]) == e.body["residuals_digest"]
            if not same or before.body["residuals"] > e.body["residuals"]:
                fault = run.fault(party, before, e)
                text = f"reports residuals that differ from those it had{fault}"
                run.check(7, False, e.where, text)
    for one, other in combinations([party for party in parties if reports[party]], 2):
        first, second = reports[one][0], reports[other][0]
        count = max(first.body["residuals"], second.body["residuals"])
        mine, theirs = releases[one][:count], releases[other][:count]
        same = mine != theirs or after(first, mine, count) == after(second, theirs, count)
        run.check(
            7, same, second.where, f"{one} and {other} report different hashes from the start"
        )


def after(report: Envelope, releases: list[bytes], count: int) -> bytes:
    """The hash of so many residuals, going on from a report."""
    known = releases[report.body["residuals"] : count]
    start: bytes = report.body["residuals_digest"]
    return reduce(sha, known, start)
