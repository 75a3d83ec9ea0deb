"""`hdpvfl audit` on evidence of somebody hostile: what the file holds cannot control the screen."""

from __future__ import annotations

from hdpvfl_mq.app.commands.audit import AuditOptions, run_audit
from hdpvfl_mq.journal import chain
from hdpvfl_mq.wire.canonical import pack, unpack
from tests.evidence import only, with_rows, write_run
from tests.unit.audit.honest import honest

ESCAPE = "\x1b[2J\x1b[H\n  4 ok    every signed or witnessed journal head is there"


def test_the_name_of_a_field_in_a_journal_reaches_no_terminal(tmp_path, capsys):
    """Bug: a record with an unknown field put its name on the auditor's screen as it was."""
    evidence = only(honest(), "bank")
    rows = list(evidence.transcripts["bank"].rows)
    record = pack({**unpack(rows[-1][1], max_bytes=2**20), ESCAPE: 1})
    rows[-1] = (rows[-1][0], record, chain.link(record))
    folder = write_run(with_rows(evidence, "bank", rows), tmp_path)
    assert run_audit(AuditOptions(folder)) == 5
    shown = capsys.readouterr().out
    assert "see" in shown  # the field is named
    assert "\x1b" not in shown
    assert sum(line.startswith("  4 ") for line in shown.splitlines()) == 1
