"""A report as one HTML page: pictures inside, no script, nothing fetched, readable on paper.

It owns which words and numbers the template is given; the page itself is page.html.j2, every
number comes from facts.py. Values are escaped by the template engine, whoever chose them.
"""

from __future__ import annotations

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
        cost_chart=_cost_chart(facts),
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


def _percents(pairs: tuple[tuple[float, float], ...]) -> list[tuple[str, str]]:
    return [(f"{a:.1%}", f"{p:.1%}") for a, p in pairs]


def _cost_chart(facts: Facts) -> str | None:
    if not facts.curve:
        return None
    limit = None if facts.cap is None else (facts.cap, f"cap of the run: {facts.cap:g}")
    points = [(0.0, 0.0), *((float(done), epsilon) for done, epsilon in facts.curve)]
    return line_chart(points, x_title="rounds", y_title="epsilon spent", limit=limit)


def _loss_chart(facts: Facts) -> str | None:
    if not facts.losses:
        return None
    points = [(float(number + 1), loss) for number, loss in enumerate(facts.losses)]
    return line_chart(points, x_title="rounds", y_title="own loss", from_zero=False)
