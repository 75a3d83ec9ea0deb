"""Lies below the role: this process acknowledges, queries or commits as no honest one does.

Each change is made once, before the production process starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hdpvfl_mq.node import mailbox
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.parts import PartExchange
from hdpvfl_mq.psi.ot_oprf import OtAsker
from parties import alignment


def _lying_delivery(field: str) -> None:
    """Acknowledge what was never sent, or co-sign other bytes."""
    honestly = Mailbox._delivery

    def lying(self: Mailbox, party: str, sequence: int) -> Any:
        delivery = honestly(self, party, sequence)
        change: dict[str, Any] = (
            {"seen": os.urandom(32)} if field == "seen" else {"ack": delivery.ack + 7}
        )
        return type(delivery)(**{**dict(delivery), **change}) if delivery.ack else delivery

    Mailbox._delivery = lying  # type: ignore[method-assign]  # this process is the liar


def _shift_queries() -> None:
    """Flip a bit in twelve columns of every query, to learn a peer's secret from its answers."""
    honestly = OtAsker.prepare

    def shifted(self: OtAsker, *given: Any) -> Any:
        query = honestly(self, *given)
        codewords = query.codewords.copy()
        codewords[:12, -1] ^= 1
        return replace(query, codewords=codewords)

    setattr(OtAsker, "prepare", shifted)  # noqa: B010 - this process is the liar


def _never_give_up() -> None:
    """Stay although peers do not acknowledge the flood; an honest party would withdraw."""
    setattr(mailbox, "UNACKNOWLEDGED_BYTES_MAX", 2**40)  # noqa: B010 - this process is the liar


def _grind() -> None:
    """Commit to a share of the public seed that differs from the one shown later."""
    honestly = vars(alignment)["commit"]  # fails if it has moved: no lie would be told

    def other(nonce: bytes, party: str) -> Any:
        return honestly(bytes(32), party)

    setattr(alignment, "commit", other)  # noqa: B010 - this process is the liar


def _serve_nothing() -> None:
    """Answer no request for parts."""
    setattr(PartExchange, "served", lambda _: iter(()))  # noqa: B010 - this process is the liar


CHANGES: dict[str, Callable[[], None]] = {
    "false_seen": partial(_lying_delivery, "seen"),
    "false_ack": partial(_lying_delivery, "ack"),
    "shifted_query": _shift_queries,
    "ground_seed": _grind,
    "blocks_too_early": _never_give_up,
    "endless_notices": _never_give_up,
    "gap": _never_give_up,
    "no_parts": _serve_nothing,
}
