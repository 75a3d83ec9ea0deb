"""A lie of a member: it sends again what its earlier process, or an earlier run, has sent.

It owns the lie; the attacks that tell it are in replays.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from hdpvfl_mq.audit.reader import read_transcript
from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.node import Node
from schemas.messages import ScoreShare
from scripts.attacks.voice import Lie, send_signed

JOURNAL = "HDPVFL_ATTACK_JOURNAL"  # of the process or run before


def sent_again(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Before its first share: all envelopes of a journal, then their shares with new numbers.

    The envelopes have their old run, epoch and number. The shares are signed again under the next
    number of this process.
    """
    path = Path(os.environ.get(JOURNAL, ""))
    if not isinstance(effect.message, ScoreShare) or not path.is_file():
        return (effect,)
    old = list(read_transcript(path, node.identity.party).sent())
    for each in old:
        node._uncommitted.send.append(each.frames)
    shares = [each for each in old if isinstance(each.message, ScoreShare)]
    for each in shares[:3]:
        send_signed(node, effect.to, "score_share", each.frames[2], each.frames[3:])
    os.environ.pop(JOURNAL)
    return (effect,)


LIES: dict[str, Lie] = {"sent_again": sent_again}
