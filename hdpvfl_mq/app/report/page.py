"""A report as one HTML page: embedded pictures, no script, no network requests, printable.

It owns the words and numbers that the template receives; page.html.j2 is the page, and every
number comes from facts.py. The template engine escapes all values.
"""

from __future__ import annotations

import math

from hdpvfl_mq.app.report.facts import Facts
from hdpvfl_mq.app.report.pictures import line_chart
from hdpvfl_mq.app.report.templates import rendered
from hdpvfl_mq.audit.audit import NOT_VERIFIABLE
from hdpvfl_mq.methods.recommend import delta_warning

_CLAIM = {
    "sound": "The figures below are a theorem about this program (docs/privacy.md), conditional on "
    "the preprocessing constants of the party's policy.",
    "paper": "The run used the noise of the published method, whose privacy claim is not proved; "
    "the cost shown is what that noise really guarantees.",
    "none": "This run had no privacy: values left as they are, and nothing bounds what can be "
    "concluded from them.",
}
_ROUNDS_OF_A_LINE = 2
_NO_OFFER = "The run never got so far as an offer."


def render(facts: Facts) -> str:
    """The whole page."""
    return rendered(
        "page.html.j2",
        facts=facts,
        claim=_CLAIM[facts.manifest.guarantee] if facts.manifest else _NO_OFFER,
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


def _outflows(facts: Facts) -> list[tuple[str, ...]]:
    return [
        (
            o.what,
            o.receivers,
            f"{o.messages:,}",
            f"{o.values:,}" if o.values else "none",
            "" if o.noise_std is None else f"{o.noise_std:.4g}",
            f"{o.bytes:,}",
        )
        for o in facts.outflows
    ]


def _origin(facts: Facts) -> list[tuple[str, str]]:
    origin, own = facts.origin, facts.own
    rows = [("made", origin.made_at), ("by", f"hdpvfl-mq {origin.version}")]
    rows += [("manifest, SHA-256", origin.manifest_digest)]
    rows += [("data set", own.dataset), ("columns of this party", ", ".join(own.columns))]
    rows += [(f"public key of {party}", key) for party, key in origin.keys]
    return [row for row in rows if row[1]]


def _cost_share(facts: Facts) -> str | None:
    """The share of the cap that a run of one round spent, in percent; longer runs get a chart."""
    if len({done for done, _ in facts.curve}) != 1 or facts.cap is None:
        return None
    return f"{min(100.0, 100.0 * facts.epsilon / facts.cap):.1f}"


def _no_cost(facts: Facts) -> str:
    if facts.is_unbounded:
        return "The cost is infinite: no epsilon bounds it."
    return "Nothing was charged."


def _percents(pairs: tuple[tuple[float, float], ...]) -> list[tuple[str, str]]:
    return [(f"{a:.1%}", f"{p:.1%}") for a, p in pairs]


def _cost_chart(facts: Facts) -> str | None:
    if len({done for done, _ in facts.curve}) < _ROUNDS_OF_A_LINE:
        return None
    limit = None if facts.cap is None else (facts.cap, f"cap of the run: {facts.cap:g}")
    points = [(0.0, 0.0), *((float(done), epsilon) for done, epsilon in facts.curve)]
    return line_chart(points, x_title="rounds", y_title="epsilon spent", limit=limit)


def _loss_chart(facts: Facts) -> str | None:
    if not facts.losses:
        return None
    points = [(float(number + 1), loss) for number, loss in enumerate(facts.losses)]
    return line_chart(points, x_title="rounds", y_title="own loss", from_zero=False)
