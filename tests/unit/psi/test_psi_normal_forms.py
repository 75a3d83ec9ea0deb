"""E-mail addresses, telephone numbers, names and dates come to one spelling, or are refused."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi import normalise, rules_digest
from schemas.config import IdRules
from schemas.data import DataSettings
from tests.integration.processes import processes

SAME = {
    "email": (
        ["Ann@Example.ORG", " ann@example.org ", "mailto:ann@example.org"],
        "ann@example.org",
    ),
    "telephone": (
        ["030 123456", "+49 30 123456", "0049-30-123456", "(030) 12 34 56"],
        "+4930123456",
    ),
    "name": (["Müller-Lüdenscheid, José", "muller ludenscheid  JOSE"], "muller ludenscheid jose"),
    "date": (["2001-02-03", "2001/2/3", "20010203", "3.2.2001"], "2001-02-03"),
}
UNUSABLE = {
    "email": ["s3cret", "a@b", "a@@b.c", "a b@c.de"],
    "telephone": ["s3cret", "12"],
    "name": ["--", "\u2019"],
    "date": ["s3cret", "2001-02-30", "03/02/2001", "3.2.01"],
}


def rules(form: str, **fields: object) -> IdRules:
    return IdRules(kind="telephone:DE" if form == "telephone" else form, **fields)


@pytest.mark.parametrize("form", SAME)
def test_spellings_of_one_value_are_one_id(form):
    spellings, expected = SAME[form]
    for spelling in spellings:
        assert list(normalise([[spelling]], rules(form)).ids) == [expected.encode()]
    assert list(normalise([[expected]], rules(form)).ids) == [expected.encode()]  # and stays


@pytest.mark.parametrize("form", UNUSABLE)
def test_other_values_are_refused_by_row_or_dropped(form):
    good = SAME[form][1]
    for value in UNUSABLE[form]:
        with pytest.raises(DataError, match="id column 1, row 2: the value is no") as caught:
            normalise([[good, value]], rules(form))
        assert "s3cret" not in str(caught.value)
        found = normalise([[good, value]], rules(form, empties="drop"))
        assert list(found.ids) == [good.encode()]


def test_forms_are_part_of_what_parties_compare():
    digests = {rules_digest(rules(form)) for form in SAME} | {rules_digest(IdRules())}
    assert len(digests) == len(SAME) + 1
    assert rules_digest(IdRules(kind="telephone:FR")) not in digests
    # Rules without forms have the digest they always had.
    assert rules_digest(IdRules()).hex().startswith("5ce80905")
    with pytest.raises(ValidationError, match="each of the id columns"):
        IdRules(kind="email+name")


def test_ids_check_shows_what_becomes_what(tmp_path, capsys):
    with processes(tmp_path, passives=1) as real:
        path = real.folder / "people.csv"
        path.write_text("name,born,x\nAnn Lee,3.2.2001,1\nBo-Li,soon,2\nÅsa,2001-02-04,4\n")
        data = DataSettings(file=str(path), id_columns=("name", "born"))
        rules = IdRules(columns=2, kind="name+date")
        real.change("passive-1", data=data, ids=rules)
        settings = str(real.demo.settings("passive-1"))
        assert main(["ids", "check", settings, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert main(["ids", "check", settings]) == 1
        said = capsys.readouterr().out
    assert found["shown"][0] == [["Ann Lee", "3.2.2001"], ["ann lee", "2001-02-03"]]
    assert (found["rows"], found["unusable"]) == (3, 1)
    assert "Åsa | 2001-02-04  ->  asa | 2001-02-04" in said
