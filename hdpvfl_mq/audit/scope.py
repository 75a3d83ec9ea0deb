"""What an audit was shown, and what that can and cannot prove.

It owns these sentences, which an audit prints first; it judges nothing. A journal that is cut and
shown alone passes its own checks: only its ledger, its peers' journals or the end of the run show
that something is missing.
"""

from __future__ import annotations

from hdpvfl_mq.audit.evidence import Evidence, Transcript
from schemas.records import Finish


def scope(evidence: Evidence) -> list[str]:
    """The first lines of an audit."""
    shown, absent = (
        list(evidence.transcripts),
        sorted(set(evidence.keys) - set(evidence.transcripts)),
    )
    count = ", ".join(f"{p} ({len(t.rows)} records)" for p, t in evidence.transcripts.items())
    lines = [f"{evidence.run}: shown are the journals of {count}"]
    if absent:
        lines.append(
            f"not shown: {', '.join(absent)}. What they recorded is known from the other end only"
        )
    if len(shown) == 1:
        lines.append(
            "one journal alone proves what it holds and what others signed to it; it does not "
            "prove that nothing came after its last record"
        )
    lines += [_open(t) for t in evidence.transcripts.values() if not _is_closed(t)]
    ledgers = ", ".join(sorted(evidence.ledgers))
    lines.append(
        f"ledgers of {ledgers}: spends and messages are compared both ways"
        if ledgers
        else "no ledger is shown: whether every release was paid, and every payment left, is open"
    )
    return lines


def _is_closed(transcript: Transcript) -> bool:
    return any(isinstance(e, Finish) for record in transcript.records for e in record.effects)


def _open(transcript: Transcript) -> str:
    last = len(transcript.rows) - 1
    return (
        f"the run is not closed in the journal of {transcript.party}: it ends with record {last}, "
        "and may have been cut there"
    )
