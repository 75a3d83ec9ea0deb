"""Part of check 7: all had the same orders and residuals, and echoed what they had."""

from __future__ import annotations

from functools import reduce
from itertools import combinations, pairwise

from .formats import sha
from .run import Envelope, Run

ORDERS = ("round_plan", "resume")
TERMS = ("manifest", "members", "toss", "order", "plan")


def had(run: Run, party: str, sender: str, *kinds: str) -> list[Envelope]:
    """What a party took of a sender: by its own journal, or as far as it answered."""
    if party in run.journals:
        refused = {
            record["index"]
            for record in run.records[party]
            if any(effect["kind"] == "refused" for effect in record["effects"])
        }
        own = [e for e in run.envelopes if e.party == party and not e.sent]
        stream = [e for e in own if e.index not in refused]
    else:
        signed = [e for e in run.said if e.sender == party]
        answered = {e.header["parent"] for e in signed}
        theirs = [e for e in run.envelopes if e.party == sender and e.sent and party in e.to]
        taken = [e.to[sender]["ack"] for e in signed if sender in e.to]
        taken += [e.to[party]["sequence"] for e in theirs if e.digest in answered]
        stream = [e for e in theirs if e.to[party]["sequence"] <= max(taken, default=0)]
    return [e for e in stream if e.sender == sender and e.kind in kinds]


def echoes_hold(run: Run) -> None:
    parties = [party for party, (role, _) in run.keys.items() if role != "coordinator"]
    orders = {party: had(run, party, "coordinator", *ORDERS) for party in parties}
    for one, other in combinations(parties, 2):
        for mine, theirs in zip(orders[one], orders[other], strict=False):
            text = f"coordinator told {one} and {other} different orders; at fault: coordinator"
            run.check(7, mine.frames[2] == theirs.frames[2], theirs.where, text)
    for party in parties:
        orders_echoed(run, party, orders[party])
    residuals_reported(run, parties)


def orders_echoed(run: Run, party: str, orders: list[Envelope]) -> None:
    terms = [e.body for e in run.of("agreement") if e.sender == party]
    if not terms or not orders:
        return
    agreed = sha(b"hdpvfl-mq agreement 1\0", *(terms[0][name] for name in TERMS))
    links = [sha(b"hdpvfl-mq orders 1\0", agreed)]
    for order in orders:
        links.append(sha(links[-1], sha(order.frames[2])))
    for e in [e for e in run.of("score_share") if e.sender == party]:
        echo = (e.body["orders"], e.body["orders_digest"])
        same = echo[0] >= len(links) or echo[1] == links[echo[0]]
        run.check(7, same, e.where, f"echoes other orders than it was told; at fault: {party}")


def residuals_reported(run: Run, parties: list[str]) -> None:
    active = next(party for party in parties if run.keys[party][0] == "active")
    releases: dict[str, list[bytes]] = {}
    reports: dict[str, list[Envelope]] = {}
    for party in parties:
        shown = party != active or party in run.journals
        own = [e for e in run.of("residual") if shown and e.sender == party]
        heard = own if party == active else had(run, party, active, "residual")
        named = [(e.release["release_id"].encode(), run.payload(e)) for e in heard]
        releases[party] = [name + b"\0" + digest for name, digest in named]
        stated = [e for e in run.of("round_report") if e.sender == party]
        reports[party] = [e for e in stated if e.body["residuals"] <= len(heard)]
        for before, e in pairwise(reports[party]):
            same = after(before, releases[party], e.body["residuals"]) == e.body["residuals_digest"]
            same &= before.body["residuals"] <= e.body["residuals"]
            run.check(7, same, e.where, f"reports other residuals than it had; at fault: {party}")
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
