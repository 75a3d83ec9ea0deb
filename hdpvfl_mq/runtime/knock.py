"""A newcomer's one message to a broker's lobby, and the broker's answer.

It owns that short connection; it makes no key and writes no file.
"""

from __future__ import annotations

import asyncio

from pydantic import ValidationError

from hdpvfl_mq.errors import IntegrityError, NetworkError, RefusedError
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.transport import FINAL_TROUBLE, DealerLink
from hdpvfl_mq.wire.canonical import unpack
from hdpvfl_mq.wire.invitation import (
    KNOCK_MAX_BYTES,
    Invitation,
    KnockAnswer,
    fingerprint_of,
    knock_of,
)

PATIENCE_S = 15.0
SENTENCES = {
    "": "nobody answers: the name may not be found or a firewall may drop what is sent",
    "unreachable": "nobody listens there: check that the broker's service runs, and the port",
    "own key refused": "the broker lets no guest in: the invitation was used, or has expired",
    "handshake failed": "the server there does not have the key of the invitation",
    "no common protocol": "the server there speaks another protocol",
}


def explain_trouble(trouble: str, address: str) -> str:
    """Why there is no connection, and what to check."""
    return f"{address}: {SENTENCES.get(trouble, SENTENCES[''])}"


async def knock(invitation: Invitation, keys: Keys, *, proxy: str | None = None) -> bytes:
    """Ask the broker for admission; returns the broker's signing key once it is granted."""
    link = DealerLink(f"tcp://{invitation.address}", keys, invitation.curve_key, proxy=proxy)
    try:
        await link.send((knock_of(invitation, keys.signing, keys.curve_public),))
        answer = await _answer(link, invitation.address)
    finally:
        link.close()
    if fingerprint_of(answer.verify_key) != invitation.fingerprint:
        raise IntegrityError("the broker's signing key is not the one in the invitation")
    if not answer.accepted:
        raise RefusedError(answer.reason)
    return answer.verify_key


async def _answer(link: DealerLink, address: str) -> KnockAnswer:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    while loop.time() < until_s:
        for frames in link.take():
            try:
                return KnockAnswer.model_validate(unpack(frames[0], max_bytes=KNOCK_MAX_BYTES))
            except ValidationError:
                raise IntegrityError("the broker's answer breaks its schema") from None
        if link.trouble in FINAL_TROUBLE:
            break
        await asyncio.sleep(0.05)
    raise NetworkError(explain_trouble(link.trouble, address))
