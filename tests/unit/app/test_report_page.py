"""The report's page: complete, without network, and with every value escaped, whoever chose it."""

from __future__ import annotations

import html
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hdpvfl_mq.app import report
from hdpvfl_mq.app.report.facts import Lifetime, Origin, Own, ReportFacts, gather_facts
from hdpvfl_mq.app.report.learnt import learnt
from hdpvfl_mq.app.report.outflows import how_noised
from hdpvfl_mq.app.report.page import lead, render
from hdpvfl_mq.app.report.pictures import line_chart
from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.privacy.accountant import epsilon_shown
from schemas.data import ColumnRule, DataSettings, NamedColumn
from schemas.methods import PrivateModel
from schemas.privacy import Budget, Release, SpendEvent
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, policy, tables
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
def facts() -> ReportFacts:
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
    words = {f.name for f in fields(ReportFacts) if isinstance(getattr(facts, f.name), str)}
    spoilt = replace(
        facts,
        **dict.fromkeys(words, HOSTILE),
        outflows=tuple(replace(o, what=HOSTILE, receivers=HOSTILE) for o in facts.outflows),
        verdicts=tuple(replace(v, title=HOSTILE, found=HOSTILE) for v in facts.verdicts),
        own=Own(HOSTILE, (HOSTILE,), learned=True, learnt=(HOSTILE,)),
        origin=Origin(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, ((HOSTILE, HOSTILE),), HOSTILE),
        lifetimes=(Lifetime(HOSTILE, Budget(epsilon=1.0, delta=0.01), 0.5, 1, 0.25),),
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


def test_the_page_says_what_it_was_made_from(facts):
    which = ("centre of income, age",)
    page = render(replace(facts, own=Own("customers", ("income", "age"), True, which)))
    for words in (
        "<td>learnt from the rows</td>",
        "centre of income, age",
        "software of bank",
        "shown are the journals of",
        facts.origin.manifest_digest,
        dict(facts.origin.keys)["shop"],
        "income, age",
        "Preprocessing constants were learnt from the rows",
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
    endless = replace(facts, lifetimes=(Lifetime("customers", cap, float("inf"), 2, 0.0),))
    page = render(endless)
    assert "infinitely much</b> is spent in 2 runs" in page
    assert "Nothing is left." in page


def test_what_is_left_beside_noised_scores_is_said_to_be_less(facts):
    cap = Budget(epsilon=1.0, delta=0.01)
    scored = replace(facts, lifetimes=(Lifetime("customers", cap, 0.5, 2, 0.25, has_scores=True),))
    assert "still fits, less what noised scores have cost" in render(scored)
    assert "noised scores have cost" not in render(facts)


def test_exact_values_are_never_called_noised():
    noised = next(m.release for _, m in recorded_evidence("sound").releases())

    def said(*kinds: str) -> str:
        events = [dict(noised.event) | {"mechanism": kind} for kind in kinds]
        return how_noised([Release(**{**dict(noised), "event": SpendEvent(**e)}) for e in events])

    assert said("lattice_gaussian", "lattice_gaussian") == "noised"
    assert said("exact") == said("disclosed") == "exact"
    assert said("lattice_gaussian", "disclosed") == "noised and exact"


def test_exact_scores_of_agreed_rows_are_counted_and_never_called_noised():
    method = PrivateModel(columns_max=8, disclosed_rows=20)
    allowed = dict.fromkeys(("bank", "shop", "telco"), policy(disclosed_rows_max=20))
    federation = Federation(manifest(method=method), tables(120), policies=allowed)
    federation.simulate()
    evidence = evidence_of(federation)
    facts = gather_facts(evidence, "shop", audit(evidence))
    assert facts.exact == facts.values == 20
    assert "20 numbers computed from its rows left this machine, all of them exact" in lead(facts)
    assert "For everybody else the run cost epsilon = 1 at" in lead(facts)
    page = render(facts)
    assert "added first" not in page
    assert "do not hold for the people whose scores left without noise" in page


@pytest.mark.parametrize("scores", ["disclosed", "noised"])
def test_the_scores_of_a_session_are_part_of_what_left(scores):
    _, models = trained()
    budget = Budget(epsilon=4.0, delta=0.01) if scores == "noised" else None
    ran = session(models, scores=scores, budget=budget)
    ran.run()
    evidence = evidence_of(ran.federation)
    facts = gather_facts(evidence, "shop", audit(evidence))
    assert facts.values > 0
    assert facts.exact == (facts.values if scores == "disclosed" else 0)
    said = lead(facts)
    assert f"{facts.values:,} numbers computed from its rows left" in said
    assert "The rows that trained the model pay nothing" in said
    if scores == "noised":
        assert "Each score costs the scored person epsilon = 4 at delta = 0.01" in said
    else:
        assert "all of them exact, without noise" in said
        assert "A scored person's score is disclosed" in said
    assert "right at most" not in render(facts)  # that bound is about training rows


def test_the_loss_of_one_round_is_a_number_and_not_a_chart():
    evidence = recorded_evidence("private_model")
    page = render(gather_facts(evidence, "bank", audit(evidence), (0.60487,)))
    assert "0.6049 after one round" in page
    assert "<svg" not in page


def test_the_page_names_the_constants_that_the_rows_decided():
    settings = DataSettings(
        file="x.csv",
        id_columns=("id",),
        default=ColumnRule(centre="learn", scale="learn"),
        rules=(
            NamedColumn(name="age", centre=50.0, scale="learn"),
            NamedColumn(name="city", categories="learn"),
        ),
    )
    assert learnt(settings, ["income", "age", "city"]) == (
        "categories of city",
        "centre of income",
        "scale of income, age",
    )
    assert learnt(settings, ["income"]) == ("centre and scale of income",)
    assert learnt(DataSettings(file="x.csv", id_columns=("id",)), ["income"]) == ()


def test_the_page_states_what_is_spent_and_what_is_left():
    federation = Federation(manifest(), tables(120), policies={})
    federation.simulate()
    evidence = evidence_of(federation)
    page = render(gather_facts(evidence, "shop", audit(evidence)))
    [life] = gather_facts(evidence, "shop", audit(evidence)).lifetimes
    assert 0.0 < life.left < life.cap.epsilon
    assert f"A further run of at most epsilon = {life.left:.4g} still fits" in page
