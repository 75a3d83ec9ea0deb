"""`hdpvfl ids check` reads what `hdpvfl join` writes, and sends a query if rows come from one."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hdpvfl_mq.app.commands.ids import check
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.runtime.settings import dump_settings
from schemas.config import IdRules, PartyServiceSettings
from schemas.data import DataSettings


def settings_file(folder: Path, data: dict[str, Any], **ids: Any) -> Path:
    """A party.toml as `hdpvfl join` writes it."""
    settings = PartyServiceSettings(
        party="shop",
        role="passive",
        federation="spring",
        broker="tcp://127.0.0.1:7700",
        broker_curve_key="00" * 32,
        broker_verify_key="00" * 32,
        keys="keys",
        policy="policy.toml",
        ids=IdRules(**ids),
        data=DataSettings(**data),
    )
    path = folder / "party.toml"
    path.write_text(dump_settings(settings))
    return path


def test_the_settings_of_a_service_are_read(tmp_path: Path, capsys: Any) -> None:
    """Bug: only settings of a single run were, so the file that join writes was refused."""
    (tmp_path / "x.csv").write_text("mail,tel,a\nA@B.org,0171 1234567,1\n,,2\n")
    data = {"file": str(tmp_path / "x.csv"), "id_columns": ("mail", "tel")}
    rules = {"kind": "email|telephone:DE", "columns": 2}
    path = settings_file(tmp_path, data, **rules, empties="drop")
    assert check(path) == 0
    assert "A@B.org | 0171 1234567  ->  a@b.org | +491711234567" in capsys.readouterr().out


def test_rows_that_a_run_would_refuse_are_announced(tmp_path: Path, capsys: Any) -> None:
    """Bug: rows without an id were counted, and the run then refused the file."""
    (tmp_path / "x.csv").write_text("mail,a\nA@B.org,1\n,2\n")
    data = {"file": str(tmp_path / "x.csv"), "id_columns": ("mail",)}
    assert check(settings_file(tmp_path, data, kind="email")) == 1
    assert 'ids.empties = "drop"' in capsys.readouterr().out
    assert check(settings_file(tmp_path, data, kind="email", empties="drop")) == 0


def test_ids_of_a_query_are_shown(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("adbc_driver_sqlite", reason="needs the extra databases")
    with sqlite3.connect(tmp_path / "shop.db") as base:
        base.execute("create table people(mail text, a real)")
        base.execute("insert into people values('A@B.org', 1.5)")
    data = {"source": f"sqlite:{tmp_path}/shop.db", "query": "select * from people"}
    path = settings_file(tmp_path, {**data, "id_columns": ("mail",)}, kind="email")
    assert check(path, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["shown"] == [[["A@B.org"], ["a@b.org"]]]
    assert not list(tmp_path.glob("**/*.arrow"))


def test_settings_without_rows_say_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"data\.file"):
        check(settings_file(tmp_path, {}))
