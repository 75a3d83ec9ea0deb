"""Own files become parties; whatever is wrong with them is said with the file and the remedy."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.app.console import _largest_spend, in_one_sentence
from hdpvfl_mq.app.demo.own_faults import FAULTS_SHOWN, in_one_line
from hdpvfl_mq.app.demo.own_files import OwnFiles, id_rules, load_own, party_name
from hdpvfl_mq.data.csv_stream import Dialect
from hdpvfl_mq.errors import DataError, SettingsError

BANK = "customer,income,default\nC1,10.5,yes\nC2,7,no\nC3,1e3,yes\nC4,-4,no\n"
SHOP = "customer,basket,city\nC4,1,Rome\nC3,2,Oslo\nC2,3,Rome\nC9,4,Bern\n"


@pytest.fixture
def files(tmp_path):
    def made(bank: str = BANK, shop: str = SHOP, **changes) -> OwnFiles:
        (tmp_path / "bank.csv").write_text(bank)
        (tmp_path / "shop.csv").write_bytes(shop.encode(errors="surrogateescape"))
        fields = {
            "active": tmp_path / "bank.csv",
            "passives": (tmp_path / "shop.csv",),
            "id_column": "customer",
            "label": "default",
            "positive": "yes",
        }
        return OwnFiles(**(fields | changes))

    return made


def test_files_become_parties_labels_and_categories(files):
    own = files()
    dataset = load_own(own)
    assert own.parties == ("bank", ("shop",))
    assert dataset.active["y"].tolist() == [1, 0, 1, 0]
    assert dataset.card.categorical == ("city",)
    assert dataset.parts(1)[0].names == ("id", "basket", "city")
    assert id_rules(dataset).kind == "text"


def test_whole_ids_are_numbers_unless_one_has_a_leading_zero(files):
    own = files(BANK.replace("C", "1"), SHOP.replace("C", "1"))
    assert id_rules(load_own(own)).kind == "integer"
    assert id_rules(load_own(files(BANK.replace("C", "0"), SHOP.replace("C", "1")))).kind == "text"


def test_a_dialect_is_taken(files):
    shop = SHOP.replace(",", ";").replace("1;Rome", "1,5;Rome")
    dialect = Dialect(separator=";", decimal=",")
    made = load_own(files(BANK.replace(",", ";").replace(".", ","), shop, dialect=dialect))
    assert made.card.categorical == ("city",)
    assert made.parts(1)[0]["basket"].tolist() == ["1.5", "2", "3", "4"]


def test_labels_of_0_and_1_need_no_positive_value(files):
    numbers = BANK.replace("yes", "1").replace("no", "0.0")
    assert load_own(files(numbers, positive=None)).active["y"].tolist() == [1, 0, 1, 0]


WRONG = {
    "text labels": ({"positive": None}, "--positive VALUE"),
    "other labels": (
        {"bank": BANK.replace("yes", "2").replace("no", "0"), "positive": None},
        "0 and 1",
    ),
    "no such value": ({"positive": "maybe"}, "--positive"),
    "no such id": ({"id_column": "person"}, "no column 'person'; it has"),
    "no such label": ({"label": "y"}, "no column 'y'"),
    "a cell of text among numbers": ({"bank": BANK.replace("-4", "four")}, "row 4"),
    "semicolons": ({"bank": BANK.replace(",", ";")}, "separator"),
    "decimal commas": (
        {
            "bank": BANK.replace(",", ";").replace("10.5", "10,5").replace("1e3", "3,1"),
            "dialect": Dialect(separator=";"),
            "shop": SHOP.replace(",", ";"),
        },
        "--decimal ,",
    ),
    "latin-1": ({"shop": SHOP.replace("Rome", "K\udcf6ln")}, "encoding"),
    "only an id": ({"shop": "customer\nC1\n"}, "no feature"),
    "tabs": ({"bank": BANK.replace(",", "\t")}, r"add --separator $'\t'"),
    "no such encoding": ({"dialect": Dialect(encoding="latin-22")}, "--encoding: 'latin-22'"),
    "a clash of names": ({"shop": SHOP.replace("city", "id")}, "'id'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_with_its_file(files, kind):
    changes, said = WRONG[kind]
    with pytest.raises((DataError, SettingsError)) as stop:
        load_own(files(**changes))
    assert said in str(stop.value)


def test_a_party_is_called_like_its_file():
    assert party_name(Path("data/Big Bank (2).parquet")) == "big-bank-2"
    for name in ("7.csv", "coordinator.csv", "---.csv"):
        with pytest.raises(SettingsError):
            party_name(Path(name))
    two = OwnFiles(Path("a/x.csv"), (Path("b/x.csv"),), "id", "y")
    with pytest.raises(SettingsError, match="rename"):
        _ = two.parties


def test_half_of_the_options_name_the_others(capsys):
    assert main(["up", "--active", "bank.csv", "--label", "default"]) == 2
    assert "--passive, --id" in capsys.readouterr().err


def test_a_budget_in_one_sentence():
    assert "73.1 times in 100" in in_one_sentence(1.0, 1e-5)
    assert "50.1 times" in in_one_sentence(0.0025, 1e-5)
    assert "100 times" in in_one_sentence(1000.0, 1e-5)
    assert "no privacy" in in_one_sentence(math.inf, 1e-5)


def test_the_sentence_is_about_what_was_booked_and_not_about_the_claim():
    """Guarantee paper claims epsilon 1 and costs more; an exact release costs infinitely much."""
    paper = {"epsilon": 1.0, "parties": [{"epsilon_spent": 1.0}, {"epsilon_spent": 9.5}]}
    assert _largest_spend(paper) == 9.5
    assert _largest_spend({"parties": [{"epsilon_spent": "infinite"}]}) == math.inf


def test_semicolons_with_decimal_commas_are_said_in_the_words_of_the_command(files):
    shop = SHOP.replace(",", ";").replace("1;Rome", "1,5;Rome")
    with pytest.raises(DataError, match="looks like ';': add --separator ';'") as wrong:
        load_own(files(shop=shop))
    assert str(wrong.value).count("shop.csv") == 1


def test_every_empty_number_of_a_file_is_said_at_once_before_anything_is_trained(files):
    shop = "customer,basket,visits,city\nC4,1,,Rome\nC3,,2,\nC2,3,nan,Rome\nC9,4,5,Bern\n"
    with pytest.raises(DataError, match="leave the column out") as wrong:
        load_own(files(shop=shop))
    assert "column 'basket', row 2: empty" in str(wrong.value)
    assert "column 'visits', row 1, 3: empty" in str(wrong.value)
    assert "city" not in str(wrong.value)


def test_all_faults_of_all_files_are_said_at_once_with_the_users_own_names_and_rows(files):
    bank = (
        "customer,income,age,default\nC1,10.5,30,yes\nC1,,31,no\nC3,inf,x,yes\n,4,33,\n"
        "C5,5,34,no\nC6,6,35,no\n"
    )
    shop = SHOP.replace("2,Oslo", ",Oslo")
    with pytest.raises(DataError) as wrong:
        load_own(files(bank, shop))
    said = str(wrong.value)
    for fault in (
        "bank.csv: column 'customer', row 4: the id is empty",
        "column 'customer', row 2: an earlier row has the same id",
        "column 'income', row 2: empty",
        "column 'income', row 3: not a number",
        "column 'age', row 3: not a number",
        "column 'default', row 4: the label is empty",
        "shop.csv: column 'basket', row 2: empty",
    ):
        assert fault in said
    assert "\n" not in said
    assert "inf:" not in said


def test_of_many_faults_some_are_shown_and_the_others_counted():
    found = [f"fault {number}" for number in range(FAULTS_SHOWN + 3)]
    assert in_one_line(found).endswith(f"fault {FAULTS_SHOWN - 1}; and 3 more faults")
    assert in_one_line(found[:2]) == "fault 0; fault 1"
