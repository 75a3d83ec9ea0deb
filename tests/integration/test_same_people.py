"""The same file under another data-set name gets no second budget without its operator's word."""

from __future__ import annotations

from pathlib import Path

import pytest

import parties.__main__
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import dump_settings, load_settings
from parties.process.build import build_node, load_assets
from schemas.config import PartySettings
from schemas.policy import PartyPolicy
from tests.integration.processes import Processes, fields_of, processes

PARTY = "passive-1"


@pytest.fixture
def demo(tmp_path: Path):
    with processes(tmp_path) as written:
        yield written


def start(demo: Processes, run: str, **policy) -> None:
    """Everything a process does before it connects."""
    demo.change(PARTY, run=run)
    settings = load_settings(PartySettings, demo.demo.settings(PARTY))
    old = load_settings(PartyPolicy, Path(settings.policy))
    Path(settings.policy).write_text(dump_settings(PartyPolicy(**{**fields_of(old), **policy})))
    keys = load_keys(Path(settings.keys))
    _, book = build_node(settings, load_assets(settings, keys), keys)
    book._ledger.close_file()


def test_another_name_needs_a_confirmation_by_name(demo: Processes, capsys, monkeypatch) -> None:
    monkeypatch.setattr(parties.__main__, "DealerLink", None)  # nothing may be sent
    start(demo, "first-run", dataset="people")
    with pytest.raises(Exception, match="people has a budget already"):
        start(demo, "second-run", dataset="persons", budget_apart_from=())
    assert parties.__main__.main(demo.demo.settings(PARTY)) == 3
    assert 'set dataset = "people"' in capsys.readouterr().err
    assert [entry.kind for _, entry in demo.entries(PARTY)] == ["secret", "cap"]
    start(demo, "third-run", dataset="persons", budget_apart_from=("people",))
    kinds = [entry.kind for _, entry in demo.entries(PARTY)]
    assert kinds == ["secret", "cap", "apart", "cap"]
    start(demo, "fourth-run", dataset="people", budget_apart_from=())
