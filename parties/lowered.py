"""Whether a run uses an older version of the protocol than necessary.

It owns that check. The registrar opens a run in the newest version that all its parties speak. It
knows their versions by then, because each has said hello and answered the proposal; but it may lie,
and version 1 has no place for a party's own statement. So a party that speaks a newer version than
its run marks its share of the public seed (hdpvfl_mq/psi/toss.py), as TLS 1.3 marks the random
number of a server: an older program takes the mark for random bytes. The shares are committed to,
travel in signed envelopes and are the same for all, so neither broker nor coordinator can remove a
mark. If all shares are marked, every party speaks a newer version, and somebody has understated it.
Nothing has been released by then.
"""

from __future__ import annotations

from collections.abc import Mapping

from hdpvfl_mq.psi import is_marked
from parties.assets import Assets
from schemas.ids import PartyId


def is_needlessly_low(own: Assets, shares: Mapping[PartyId, bytes]) -> bool:
    """Whether every party speaks a newer version than the run uses."""
    return own.is_lowered and all(map(is_marked, shares.values()))
