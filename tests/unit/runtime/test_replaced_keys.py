"""Replacing keys: a folder with the old key's signature, and a command for who receives it."""

from __future__ import annotations

import json

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.runtime.keys import former_keys, load_keys, make_keys, replace_keys


@pytest.fixture
def replaced(tmp_path):
    """Keys that were replaced twice."""
    made = [make_keys(tmp_path / "keys-0")]
    made += [
        replace_keys(tmp_path / f"keys-{n}", tmp_path / f"keys-{n + 1}", "shop") for n in (0, 1)
    ]
    return tmp_path, made


def test_a_folder_knows_the_keys_it_replaces(replaced):
    folder, made = replaced
    expected = tuple(keys.signing.verify_key for keys in made)
    assert former_keys(folder / "keys-0", "shop") == ()
    assert former_keys(folder / "keys-2", "shop") == expected[:2]
    assert (folder / "keys-2" / "changes.json").stat().st_mode & 0o077 == 0


def test_a_history_beside_other_keys_stops_the_party(replaced):
    folder, _ = replaced
    for name in ("sign.key", "curve.key"):
        (folder / "keys-2" / name).unlink()
        (folder / "keys-0" / name).rename(folder / "keys-2" / name)
    with pytest.raises(IntegrityError, match="does not lead to the keys of shop"):
        former_keys(folder / "keys-2", "shop")


def test_keys_of_another_party_are_not_replaced(replaced):
    folder, _ = replaced
    with pytest.raises(OperatorError, match="the keys of shop, not of telco"):
        replace_keys(folder / "keys-2", folder / "keys-3", "telco")


def test_the_commands(tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    known = make_keys(old).verify_hex
    assert main(["keys", str(new), "--replace", str(old), "--party", "shop"]) == 0
    capsys.readouterr()
    check = ["key-change", str(new / "changes.json"), "--party", "shop", "--json", "--known"]
    assert main([*check, known]) == 0
    assert json.loads(capsys.readouterr().out)["verify_key"] == load_keys(new).verify_hex
    assert main([*check, "ab" * 32]) == IntegrityError.exit_code
    assert main(["keys", str(tmp_path / "third"), "--replace", str(old)]) == 2
    assert not (tmp_path / "third").exists()
