"""A report as one HTML page: embedded pictures, no script, no network requests, printable.

It owns the words and numbers that the template receives; page.html.j2 is the page, and every
number comes from facts.py. The template engine escapes all values.
"""

from __future__ import annotations

import math

from hdpvfl_mq.app.report.facts import ReportFacts
from hdpvfl_mq.app.report.outflows import Outflow
from hdpvfl_mq.app.report.pictures import line_chart
from hdpvfl_mq.app.report.templates import rendered
from hdpvfl_mq.audit.audit import NOT_VERIFIABLE
from hdpvfl_mq.methods.recommend import delta_warning

_CLAIM = {
    "sound": "The figures below follow from a theorem about this program (docs/privacy.md).",
    "paper": "The run used the noise of the published method, whose privacy claim is not proved; "
    "the cost shown is what that noise really guarantees.",
    "none": "This run had no privacy: values left as they are, and nothing bounds what can be "
    "concluded from them.",
}
_ROUNDS_OF_A_LINE = 2
_NO_OFFER = "The run ended before it was offered to this party."
_CONDITIONAL = (
    "Preprocessing constants were learnt from the rows, so the figures are conditional on them."
)


def render(facts: ReportFacts) -> str:
    """The whole page."""
    return rendered(
        "page.html.j2",
        facts=facts,
        lead=lead(facts),
        claim=_claim(facts),
        outflows=_outflows(facts),
        hits=_percents(facts.meaning.detections),
        beliefs=_percents(facts.meaning.posteriors),
        origin=_origin(facts),
        cost_chart=_cost_chart(facts),
        cost_share=_cost_share(facts),
        no_cost=_no_cost(facts),
        infinite=math.inf,
        warning=delta_warning(facts.delta, facts.rows),
        loss_chart=_loss_chart(facts),
        limits=NOT_VERIFIABLE,
    )


def lead(facts: ReportFacts) -> str:
    """What left and what it cost, in the page's first sentences."""
    said = (
        f"{facts.party} took part as the {facts.role} party with {facts.rows:,} common rows. "
        f"{_left(facts)} {_cost(facts)}"
    )
    found = sum(not verdict.passed for verdict in facts.verdicts)
    checks = len(facts.verdicts)
    if found:
        return f"{said} {found} of {checks} checks found something."
    return f"{said} All {checks} checks of the audit passed."


def _left(facts: ReportFacts) -> str:
    """How many numbers left, and how many of them without noise."""
    if not facts.values:
        return "No number computed from its rows left this machine."
    said = f"{facts.values:,} numbers computed from its rows left this machine, "
    if facts.exact == facts.values:
        return said + "all of them exact, without noise."
    if facts.exact:
        return said + f"{facts.exact:,} of them exact, without noise, the others with noise."
    return said + "each with random noise added first."


def _cost(facts: ReportFacts) -> str:
    """What the whole run cost the rows."""
    if facts.is_unbounded:
        return "The cost is infinite: nothing bounds what can be concluded from them."
    if facts.scoring is not None:
        trained = "The rows that trained the model pay nothing for scores."
        budget = facts.manifest.budget if facts.manifest else None
        if budget is None:
            return f"{trained} A scored person's score is disclosed (docs/scored-people.md)."
        return (
            f"{trained} Each score costs the scored person epsilon = {budget.epsilon:g} at delta = "
            f"{budget.delta:g} (docs/scored-people.md)."
        )
    cost = f"epsilon = {facts.epsilon:.4g} at delta = {facts.delta:g}"
    if facts.exact:
        return (
            f"The parties agreed on the rows whose scores leave without noise; these people count "
            f"as disclosed. For everybody else the run cost {cost}."
        )
    return f"Together they cost {cost}."


def _claim(facts: ReportFacts) -> str:
    if facts.manifest is None:
        return _NO_OFFER
    said = f"{_CLAIM[facts.manifest.guarantee]} No row, weight or loss is among what left."
    return f"{said} {_CONDITIONAL}" if facts.own.learned else said


def _outflows(facts: ReportFacts) -> list[tuple[str, ...]]:
    return [
        (
            o.what,
            o.receivers,
            f"{o.messages:,}",
            f"{o.values:,}" if o.values else "none",
            _noise(o),
            f"{o.bytes:,}",
        )
        for o in facts.outflows
    ]


def _noise(outflow: Outflow) -> str:
    if outflow.noise_std is None:
        return ""
    return "none" if outflow.exact == outflow.values else f"{outflow.noise_std:.4g}"


def _origin(facts: ReportFacts) -> list[tuple[str, str]]:
    origin, own = facts.origin, facts.own
    rows = [("made", origin.made_at), ("by", f"hdpvfl-mq {origin.version}")]
    rows += [(f"software of {facts.party}", origin.profile)]
    rows += [("manifest, SHA-256", origin.manifest_digest)]
    rows += [("data set", own.dataset), ("columns of this party", ", ".join(own.columns))]
    rows += [("learnt from the rows", "; ".join(own.learnt))]
    rows += [(f"public key of {party}", key) for party, key in origin.keys]
    return [row for row in rows if row[1]]


def _cost_share(facts: ReportFacts) -> str | None:
    """The share of the cap that a run of one round spent, in percent; longer runs get a chart."""
    if len({done for done, _ in facts.curve}) != 1 or facts.cap is None:
        return None
    return f"{min(100.0, 100.0 * facts.epsilon / facts.cap):.1f}"


def _no_cost(facts: ReportFacts) -> str:
    if facts.is_unbounded:
        return "The cost is infinite: no epsilon bounds it."
    return "Nothing was charged."


def _percents(pairs: tuple[tuple[float, float], ...]) -> list[tuple[str, str]]:
    return [(f"{a:.1%}", f"{p:.1%}") for a, p in pairs]


def _cost_chart(facts: ReportFacts) -> str | None:
    if len({done for done, _ in facts.curve}) < _ROUNDS_OF_A_LINE:
        return None
    limit = None if facts.cap is None else (facts.cap, f"cap of the run: {facts.cap:g}")
    points = [(0.0, 0.0), *((float(done), epsilon) for done, epsilon in facts.curve)]
    return line_chart(points, x_title="rounds", y_title="epsilon spent", limit=limit)


def _loss_chart(facts: ReportFacts) -> str | None:
    if len(facts.losses) < _ROUNDS_OF_A_LINE:
        return None
    points = [(float(number + 1), loss) for number, loss in enumerate(facts.losses)]
    return line_chart(points, x_title="rounds", y_title="own loss", from_zero=False)
