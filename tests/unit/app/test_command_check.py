"""`hdpvfl check` finds every fault at once, with its line, alone and between files."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from hdpvfl_mq.app import cli
from hdpvfl_mq.runtime.keys import make_keys
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.toml_lines import line_of
from schemas.config import RunManifest

PARTY = """\
party = "shop"
role = "passive"
federation = "spring"
broker = "tcp://broker.example.org:7700"
broker_curve_key = "{zeros}"
broker_verify_key = "{zeros}"
keys = "keys"
policy = "policy.toml"

[data]
file = "rows.csv"
id_columns = ["customer"]

[[data.rules]]
name = "income"
scale = 20000.0

[[data.rules]]
name = "age"
"""
POLICY = """\
dataset = "customers"
run_epsilon_max = 2.0
rows_min = 100

[lifetime]
epsilon = 4.0
delta = 1e-5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_keys(Path("keys"))
    Path("party.toml").write_text(PARTY.format(zeros="0" * 64))
    Path("policy.toml").write_text(POLICY)
    Path("rows.csv").write_text("customer,income,age\nc1,3,4\n")
    plan = ["plan", "--rows", "5000", "--write", "run.toml", "--active", "bank", "--with", "shop"]
    assert cli.main(plan) == 0
    text = Path("run.toml").read_text()
    Path("run.toml").write_text(text.replace("rows_min = 2", "rows_min = 100"))
    return tmp_path


def faults(capsys, *files: str, code: int = 1) -> dict[tuple[str, int], str]:
    capsys.readouterr()
    assert cli.main(["check", *files, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    return {(each["file"], each["line"]): each["text"] for each in found}


def replace(file: str, *changes: tuple[str, str]) -> None:
    text = Path(file).read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    Path(file).write_text(text)


def test_good_files_are_good(folder, capsys):
    assert faults(capsys, "party.toml", "run.toml", code=0) == {}
    assert cli.main(["check", "party.toml", "run.toml"]) == 0
    assert "policy.toml (a policy)" in capsys.readouterr().out  # the party names it


def test_every_fault_of_a_file_comes_at_once_with_its_line(folder, capsys):
    replace(
        "party.toml",
        ('role = "passive"', 'role = "pasive"'),
        ("scale = 20000.0", "scale = -1.0"),
        ("[data]", 'colour = "red"\n\n[data]'),
    )
    found = faults(capsys, "party.toml")
    assert set(found) == {("party.toml", 2), ("party.toml", 10), ("party.toml", 18)}
    assert "check its spelling" in found["party.toml", 10]
    assert "data.rules.0.scale" in found["party.toml", 18]


def test_files_and_columns_that_are_not_there(folder, capsys):
    replace("party.toml", ('name = "age"', 'name = "agee"'), ('["customer"]', '["custom"]'))
    replace("party.toml", ('keys = "keys"', 'keys = "none"'), ("policy.toml", "no.toml"))
    found = faults(capsys, "party.toml")
    assert {line for _, line in found} == {7, 8, 12, 19}
    assert "no column agee" in found["party.toml", 19]


def test_a_password_in_the_settings_is_found_before_the_database_is_asked(folder, capsys):
    """Bug: it was refused only when the source was opened."""
    address = 'source = "postgresql://reader:secret@db/shop"\nquery = "select 1"\n'
    replace("party.toml", ('file = "rows.csv"\n', address))
    (text,) = faults(capsys, "party.toml").values()
    assert "no password in settings" in text
    assert "secret" not in text


def test_a_policy_is_held_against_the_manifest_rule_by_rule(folder, capsys):
    replace("policy.toml", ("= 2.0", "= 0.5"), ("= 100", "= 1000"))
    replace(
        "policy.toml", ("[lifetime]", 'alignment_methods = ["ecdh"]\npeers = ["telco"]\n[lifetime]')
    )
    found = faults(capsys, "policy.toml", "run.toml")
    assert {line for _, line in found} == {2, 3, 5, 6}
    assert "run_epsilon_max is 0.5" in found["policy.toml", 2]
    replace("policy.toml", ("epsilon = 4.0", "epsilon = 0.2"), ("= 0.5", "= 5.0"))
    assert (
        "does not have enough left" in faults(capsys, "policy.toml", "run.toml")["policy.toml", 7]
    )


def test_a_party_is_held_against_the_manifest(folder, capsys):
    replace("party.toml", ("[data]", "[ids]\ncasefold = true\n\n[data]"))
    replace("run.toml", ('    "shop",', '    "other",'))
    found = faults(capsys, "party.toml", "run.toml")
    assert "ids.casefold" in found["party.toml", 11]
    assert any("shop of party.toml is not named" in text for text in found.values())


def test_what_cannot_be_read_has_its_own_words(folder, capsys):
    Path("broken.toml").write_text("a = 1\nb = = 2\n")
    Path("other.toml").write_text('colour = "red"\n')
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    found = faults(capsys, "broken.toml", "other.toml", "bytes.toml", "none.toml")
    assert "is not TOML" in found["broken.toml", 2]
    assert "is not a settings file" in found["other.toml", 1]
    assert "UTF-8" in found["bytes.toml", 1]
    assert "check the path" in found["none.toml", 1]


def test_the_planner_writes_a_manifest_that_is_read_back(folder):
    manifest = load_settings(RunManifest, Path("run.toml"))
    assert (manifest.active_party, manifest.passive_parties) == ("bank", ("shop",))
    assert manifest.method.kind == "private_model"
    again = ["plan", "--rows", "5000", "--write", "run.toml"]
    assert cli.main(again) == 2  # a file that is there is not replaced


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("a",), 1),
        (("t", "b"), 4),
        (("t", "u", 1, "c"), 8),
        (("t", "u", 1, "none"), 7),
        (("x",), 1),
    ],
)
def test_lines_are_those_of_the_settings(place, line):
    text = "a = 1\n\n[t]\nb = 2\n[[t.u]]\nc = 3\n[[t.u]]\nc = 4\n"
    tomllib.loads(text)
    assert line_of(text, place) == line
