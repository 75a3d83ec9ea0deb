"""`hdpvfl join` looks at the data file before it asks anybody for admission."""

from __future__ import annotations

import argparse

import pytest

from hdpvfl_mq.app.commands.join import _data
from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.wire.invitation import Invitation

BANK = "customer,income\nC1,10.5\n"


def options(tmp_path, content: bytes, **changes) -> argparse.Namespace:
    (tmp_path / "rows.csv").write_bytes(content)
    fields = {
        "data": str(tmp_path / "rows.csv"),
        "source": None,
        "query": None,
        "id": ["customer"],
        "label": None,
        "separator": ",",
        "decimal": ".",
        "encoding": "utf-8",
    }
    return argparse.Namespace(**{**fields, **changes})


@pytest.fixture
def invitation() -> Invitation:
    return Invitation(
        address="127.0.0.1:7700",
        federation="spring",
        party="shop",
        role="passive",
        curve_key=bytes(32),
        fingerprint=bytes(16),
        secret=bytes(16),
        expires_s=2**31,
    )


def test_a_file_with_semicolons_is_taken_once_its_separator_is_named(tmp_path, invitation):
    content = BANK.replace(",", ";").encode()
    with pytest.raises(DataError, match="add --separator ';'"):
        _data(options(tmp_path, content), invitation)
    taken = _data(options(tmp_path, content, separator=";"), invitation)
    assert taken["separator"] == ";"


def test_a_header_in_another_encoding_names_the_option(tmp_path, invitation):
    content = BANK.replace("income", "K\u00f6ln").encode("latin-1")
    with pytest.raises(DataError, match="add --encoding"):
        _data(options(tmp_path, content), invitation)
    assert _data(options(tmp_path, content, encoding="latin-1"), invitation)
    with pytest.raises(SettingsError, match="--encoding: 'latin-22'"):
        _data(options(tmp_path, content, encoding="latin-22"), invitation)


def test_a_party_may_join_with_a_database(tmp_path, invitation):
    """Bug: only a file could be named, so a database needed a file that nobody would read."""
    query = {"source": "sqlite:shop.db", "query": "select * from customers"}
    taken = _data(options(tmp_path, b"", data=None, **query), invitation)
    assert (taken["file"], taken["query"]) == (None, query["query"])
    for wrong in ({"data": None}, query, {"data": None, "source": "sqlite:shop.db"}):
        with pytest.raises(SettingsError, match="give --data, or --source and --query"):
            _data(options(tmp_path, BANK.encode(), **wrong), invitation)


def test_an_address_is_not_taken_for_a_path(tmp_path, invitation):
    """Bug: s3://bucket/x was refused as a missing file s3:/bucket/x."""
    with pytest.raises(SettingsError, match="hint:// is not known"):
        _data(options(tmp_path, b"", data="hint://bucket/x"), invitation)


def test_several_id_columns(tmp_path, invitation):
    content = b"mail,tel,income\na@b.org,0171 1,2\n"
    taken = _data(options(tmp_path, content, id=["mail", "tel"]), invitation)
    assert taken["id_columns"] == ["mail", "tel"]
    with pytest.raises(DataError, match="no column 'phone'"):
        _data(options(tmp_path, content, id=["mail", "phone"]), invitation)
