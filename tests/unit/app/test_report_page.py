"""The report's page: complete, without network, and with every value escaped, whoever chose it."""

from __future__ import annotations

import html
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hdpvfl_mq.app import report
from hdpvfl_mq.app.report.facts import Facts, Lifetime, Origin, Own, gather_facts, how_noised
from hdpvfl_mq.app.report.page import render
from hdpvfl_mq.app.report.pictures import line_chart
from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.privacy.accountant import epsilon_shown
from schemas.methods import PrivateModel
from schemas.privacy import Budget, Release, SpendEvent
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, policy
from tests.golden.recorded import recorded_evidence
from tests.simulation.scoring import session, trained

HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=y>"
CHART = {"svg", "line", "text", "polyline", "circle"}
TABLE = {"table", "tr", "th", "td"}
TEXT = {"h1", "h2", "p", "ul", "li", "b", "span"}
ALLOWED = {"div", "html", "head", "meta", "title", "style", "body"} | TEXT | TABLE | CHART


class Tags(HTMLParser):
    """Collects the names of all elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)


@pytest.fixture(scope="module")
def facts() -> Facts:
    evidence = recorded_evidence("sound")
    return gather_facts(evidence, "bank", audit(evidence), (0.7, 0.65, 0.6))


def test_the_page_is_whole(facts):
    page = render(facts)
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert Tags(page).names == ALLOWED
    assert "All 13 checks of the audit passed" in page
    assert "Own loss" in page
    assert "Own loss" not in render(replace(facts, losses=()))


def test_hostile_words_are_text_wherever_they_stand(facts):
    """Party names, run names, receivers, messages and what a check found: all of them."""
    words = {f.name for f in fields(Facts) if isinstance(getattr(facts, f.name), str)}
    spoilt = replace(
        facts,
        **dict.fromkeys(words, HOSTILE),
        outflows=tuple(replace(o, what=HOSTILE, receivers=HOSTILE) for o in facts.outflows),
        verdicts=tuple(replace(v, title=HOSTILE, found=HOSTILE) for v in facts.verdicts),
        own=Own(HOSTILE, (HOSTILE,), learned=True),
        origin=Origin(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, ((HOSTILE, HOSTILE),)),
        lifetimes=(Lifetime(HOSTILE, Budget(epsilon=1.0, delta=0.01), 0.5, 1),),
    )
    assert words == {"run", "party", "role"}
    assert all(is_dataclass(part) for part in (*facts.outflows, *facts.verdicts))
    page = render(spoilt)
    assert Tags(page).names == ALLOWED
    assert html.unescape(page).count(HOSTILE) == page.count("&lt;script&gt;") > 30


def test_hostile_titles_of_a_chart_are_text():
    page = line_chart([(0.0, 1.0)], x_title=HOSTILE, y_title=HOSTILE, limit=(1.0, HOSTILE))
    assert Tags(page).names == CHART


def test_no_template_switches_escaping_off():
    folder = Path(report.__path__[0])
    for template in folder.glob("*.j2"):
        assert "safe" not in template.read_text()
        assert "autoescape" not in template.read_text()


def test_statistics_that_stay_inside_are_part_of_the_cost():
    """A fit of the private model is paid although only scores made with it leave."""
    evidence = recorded_evidence("private_model")
    for party in ("bank", "shop"):
        facts = gather_facts(evidence, party, audit(evidence))
        role = "active" if party == "bank" else "passive"
        assert facts.spent == evidence.plan.spent_by(role)
        assert facts.epsilon == epsilon_shown(facts.spent, facts.delta)


def test_disclosed_rows_are_excepted_from_every_figure():
    """Bug: the page said that each number had noise, and bounded what exact scores tell."""
    method = PrivateModel(columns_max=8, disclosed_rows=20, held_out_rows=10)
    allowed = dict.fromkeys(("shop", "telco"), policy(disclosed_rows_max=30))
    federation = Federation(manifest(method=method), policies=allowed)
    federation.simulate()
    evidence = evidence_of(federation)
    facts = gather_facts(evidence, "shop", audit(evidence))
    assert (facts.values, facts.disclosed) == (30, 30)
    assert 0.0 < facts.epsilon <= 1.0
    page = render(facts)
    assert "30 of them <b>exact scores</b>" in page
    assert "Not about the people whose exact scores left" in page
    assert "each with random noise" not in page
    assert "each with random noise" in render(gather_facts(evidence, "bank", audit(evidence)))


@pytest.mark.parametrize("scores", ["disclosed", "noised"])
def test_the_page_of_a_session_counts_its_answers(scores):
    """Bug: a session that disclosed everybody was shown as one in which nothing left."""
    budget = Budget(epsilon=2.0, delta=0.01) if scores == "noised" else None
    ran = session(trained()[1], scores=scores, budget=budget)
    ran.run()
    evidence = evidence_of(ran.federation)
    facts = gather_facts(evidence, "shop", audit(evidence))
    people = evidence.plan.rows
    assert facts.values == people
    assert facts.disclosed == (people if scores == "disclosed" else 0)
    assert (facts.epsilon > 1.9) == (scores == "noised")  # of one person, asked for once or more
    assert facts.epsilon <= 2.0
    assert ("exact scores" in render(facts)) == (scores == "disclosed")


def test_the_page_says_what_it_was_made_from(facts):
    page = render(replace(facts, own=Own("customers", ("income", "age"), learned=True)))
    for words in (
        "shown are the journals of",
        facts.origin.manifest_digest,
        dict(facts.origin.keys)["shop"],
        "income, age",
        "learnt from the rows",
    ):
        assert words in page
    assert "learnt from the rows" not in render(facts)


def test_a_run_of_one_round_is_a_bar_and_not_a_line():
    evidence = recorded_evidence("private_model")
    page = render(gather_facts(evidence, "shop", audit(evidence)))
    assert "<svg" not in page
    assert 'class="bar"' in page


def test_infinite_spends_are_said_in_words(facts):
    cap = Budget(epsilon=1.0, delta=0.01)
    endless = replace(facts, lifetimes=(Lifetime("customers", cap, float("inf"), 2),))
    assert "infinitely much</b> is spent in 2 runs" in render(endless)


def test_exact_values_are_never_called_noised():
    noised = next(m.release for _, m in recorded_evidence("sound").releases())

    def said(*kinds: str) -> str:
        events = [dict(noised.event) | {"mechanism": kind} for kind in kinds]
        return how_noised([Release(**{**dict(noised), "event": SpendEvent(**e)}) for e in events])

    assert said("lattice_gaussian", "lattice_gaussian") == "noised"
    assert said("exact") == said("disclosed") == "exact"
    assert said("lattice_gaussian", "disclosed") == "noised and exact"
