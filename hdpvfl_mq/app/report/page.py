"""A report as one HTML page: pictures inside, no script, nothing fetched, readable on paper.

It owns the words and the look; every number comes from report_facts.py.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from hdpvfl_mq.app.report.facts import Facts
from hdpvfl_mq.app.report.pictures import line_chart
from hdpvfl_mq.audit.audit import NOT_VERIFIABLE
from hdpvfl_mq.methods.recommend import delta_warning

_STYLE = """
body{font:16px/1.55 Georgia,serif;max-width:46rem;margin:2.5rem auto;padding:0 1rem;color:#1c2430}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-size:.92rem}
td,th{padding:.35rem .6rem .35rem 0;border-bottom:1px solid #dde2e8}
td,th{text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.lead{font-size:1.08rem}.note{color:#5b6675;font-size:.9rem}
.ok{color:#1d6b3a}.bad{color:#a3161b;font-weight:bold}
svg{width:100%;height:auto;font:11px sans-serif}
svg .grid{stroke:#e4e8ee}svg text{fill:#5b6675}
svg text.y{text-anchor:end}svg text.x{text-anchor:middle}
svg .line{fill:none;stroke:#1f5fa8;stroke-width:2}svg circle{fill:#1f5fa8}
svg line.limit{stroke:#a3161b;stroke-dasharray:6 4}svg text.limit{fill:#a3161b}
@media print{body{margin:0}}
"""
_CLAIM = {
    "sound": "The figures below are a theorem about this program (docs/privacy.md), conditional on "
    "the preprocessing constants of the party's policy.",
    "paper": "The run used the noise of the published method, whose privacy claim is not proved; "
    "the cost shown is what that noise really guarantees.",
    "none": "This run had no privacy: values left as they are, and nothing bounds what can be "
    "concluded from them.",
}


def render(facts: Facts) -> str:
    """The whole page."""
    title = f"What left {facts.party} in {facts.run}"
    body = "".join(
        (
            f"<h1>{html.escape(title)}</h1>",
            _summary(facts),
            _outflows(facts),
            _costs(facts),
            _conclusions(facts),
            _losses(facts),
            _audit(facts),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _summary(facts: Facts) -> str:
    values = sum(outflow.values for outflow in facts.outflows)
    passed = sum(verdict.passed for verdict in facts.verdicts)
    manifest = facts.manifest
    claim = _CLAIM[manifest.guarantee] if manifest else "The run never got so far as an offer."
    alarm = (
        f"All {passed} checks of the audit passed."
        if passed == len(facts.verdicts)
        else f"{len(facts.verdicts) - passed} of {len(facts.verdicts)} checks found something."
    )
    return (
        f'<p class="lead">{html.escape(facts.party)} took part as the {facts.role} party with '
        f"{facts.rows:,} common rows. {values:,} numbers computed from its rows left this machine, "
        f"{_noise_words(facts)}. {alarm}</p>"
        f'<p class="note">{html.escape(claim)} No row, weight or loss is among what left.</p>'
    )


def _noise_words(facts: Facts) -> str:
    if facts.spent.exact:
        return "exact, without noise"
    if math.isinf(facts.epsilon):
        return "each with noise, but not enough of it to bound what can be concluded"
    return (
        f"each with random noise added first; together they cost "
        f"epsilon = {facts.epsilon:.4g} at delta = {facts.delta:g}"
    )


def _outflows(facts: Facts) -> str:
    rows = [
        (
            html.escape(o.what),
            html.escape(o.receivers),
            f"{o.messages:,}",
            f"{o.values:,}" if o.values else "none",
            "" if o.noise_std is None else f"{o.noise_std:.4g}",
            f"{o.bytes:,}",
        )
        for o in facts.outflows
    ]
    heads = ("what", "to whom", "messages", "values about rows", "noise added (std)", "bytes")
    return (
        "<h2>What left this machine</h2>"
        + _table(heads, rows, text_columns=2)
        + '<p class="note">This is the complete list of signed messages in the journal. '
        "'Values about rows' are numbers computed from private rows; everything else is public "
        "among the parties or blinded.</p>"
    )


def _costs(facts: Facts) -> str:
    lines = ["<h2>What it cost</h2>"]
    if facts.curve:
        limit = None if facts.cap is None else (facts.cap, f"cap of the run: {facts.cap:g}")
        points = [(0.0, 0.0), *((float(done), epsilon) for done, epsilon in facts.curve)]
        chart = line_chart(points, x_title="rounds", y_title="epsilon spent", limit=limit)
        lines.append(chart)
    else:
        lines.append("<p>No finite cost was booked.</p>")
    if warning := delta_warning(facts.delta, facts.rows):
        lines.append(f"<p><b>{html.escape(warning)}.</b></p>")
    if facts.lifetime is not None:
        lines.append(
            f"<p>Over its whole life this data set may spend epsilon = {facts.lifetime.epsilon:g} "
            f"at delta = {facts.lifetime.delta:g}; the ledger refuses what would exceed it.</p>"
        )
    return "".join(lines)


def _conclusions(facts: Facts) -> str:
    if math.isinf(facts.mu) or math.isinf(facts.epsilon):
        return (
            "<h2>What an attacker could conclude</h2><p>There is no bound: treat what left as if "
            "the rows themselves had been shown.</p>"
        )
    found = facts.meaning
    guess = (
        f"<p>Think of the strongest attacker: everybody else together, who knows every other row "
        f"and wants to tell which of two possible records one person has. By tossing a coin he is "
        f"right 50 % of the time. With everything that left this machine he is right at most "
        f"<b>{found.guess:.1%}</b> of the time.</p>"
    )
    hits = [(f"{a:.1%}", f"{p:.1%}") for a, p in found.detections]
    beliefs = [(f"{a:.1%}", f"{p:.1%}") for a, p in found.posteriors]
    return (
        "<h2>What an attacker could at most conclude</h2>"
        + guess
        + _table(("if he may raise false alarms in", "he is right about at most"), hits, 0)
        + "<p>Or in beliefs: how sure he can become of something about one person.</p>"
        + _table(("before", "after, at most"), beliefs, 0)
        + f'<p class="note">The second table fails in at most {found.excess:.2g} of all cases: '
        f"that is how often the privacy loss exceeds epsilon = {facts.epsilon:.4g}, which is not "
        f"the same as delta = {facts.delta:g}. The first table has no exception. "
        "Both hold whatever else he knows, now or later. One person who appears in several "
        "parties' data has the costs of all of them.</p>"
    )


def _losses(facts: Facts) -> str:
    if not facts.losses:
        return ""
    points = [(float(number + 1), loss) for number, loss in enumerate(facts.losses)]
    chart = line_chart(points, x_title="rounds", y_title="own loss", from_zero=False)
    return (
        "<h2>Own loss</h2>"
        + chart
        + '<p class="note">Computed from this party\'s own labels by replaying its journal. It '
        "never left this machine; keep this file inside.</p>"
    )


def _audit(facts: Facts) -> str:
    rows = [
        (
            str(verdict.number),
            html.escape(verdict.title),
            '<span class="ok">passed</span>'
            if verdict.passed
            else f'<span class="bad">{html.escape(verdict.found)}</span>',
        )
        for verdict in facts.verdicts
    ]
    limits = "".join(f"<li>{html.escape(text)}</li>" for text in NOT_VERIFIABLE)
    return (
        "<h2>The audit</h2>"
        + _table(("", "check", "result"), rows, text_columns=3)
        + f"<p>What no audit from outside can show:</p><ul>{limits}</ul>"
    )


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], text_columns: int) -> str:
    """Cells are HTML already; columns after the first `text_columns` hold numbers."""

    def cells(tag: str, values: tuple[str, ...]) -> str:
        return "".join(
            f"<{tag}>{value}</{tag}>" if at < text_columns else f'<{tag} class="n">{value}</{tag}>'
            for at, value in enumerate(values)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', heads)}</tr>{lines}</table>"
