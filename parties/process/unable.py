"""Tells the other parties of a run that this party cannot take part, before its process ends.

It owns the journal of a party that never joined; the messages are in parties/unable.py. Without it,
the others would wait for this party until the deadline.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hdpvfl_mq.errors import HdpvflError, OperatorError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.hub import Hub
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.process import say
from hdpvfl_mq.runtime.runner import Runner
from hdpvfl_mq.runtime.transport import FINAL_TROUBLE, DealerLink
from hdpvfl_mq.wire.codec import decode_header
from parties.process.build import PartyFiles, contacts, identity_of
from parties.unable import Unable
from schemas.config import PartySettings
from schemas.ids import COORDINATOR
from schemas.records import EnvelopeSent

CONNECT_S = 8.0  # how long to wait for a broker that does not run yet
SILENT_S = 1.0  # of that, how long without a word to the operator
TELL_S = 10.0


async def refuse_again(settings: PartySettings, keys: Keys) -> None:
    """Stop if an earlier process of this run has already withdrawn from it."""
    if not _has_left(settings):
        return
    await tell(settings, keys)  # the withdrawal may not have reached them
    raise OperatorError(
        f"{settings.party} has withdrawn from run {settings.run} because of its data or settings, "
        "and the run is over for all: correct them and give the run another name"
    )


async def tell(settings: PartySettings, keys: Keys) -> None:
    """Tell the others; do nothing if this party has joined before or no broker comes up."""
    if PartyFiles(settings).journal.exists() and not _has_left(settings):
        return
    link = DealerLink(settings.broker, keys, bytes.fromhex(settings.broker_curve_key))
    try:
        if await _stands(link, settings):
            with suppress(HdpvflError, OSError):
                await asyncio.wait_for(_tell(settings, keys, link), TELL_S)
    except (TimeoutError, asyncio.CancelledError):  # Ctrl-C ends the wait; the caller says why
        pass
    finally:
        link.close()


async def _tell(settings: PartySettings, keys: Keys, link: DealerLink) -> None:
    known = contacts(settings)
    others = tuple(sorted(set(known) - {COORDINATOR}))
    path = PartyFiles(settings).journal
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(path, run=settings.run, party=settings.party)
    role = Unable(settings.party, others)
    node = Node(role, identity_of(settings, keys), known, journal=journal)
    node.open()
    hub = Hub(link)
    runner = Runner(node, hub.open(settings.run), patience_s=TELL_S, observe=lambda _: None)
    pump = asyncio.create_task(hub.pump())
    try:
        await runner.run()
    finally:
        pump.cancel()
        node.close()


async def _stands(link: DealerLink, settings: PartySettings) -> bool:
    """Whether the broker answers; it may start later than this party."""
    clock = asyncio.get_running_loop().time
    began, is_said = clock(), False
    while not link.is_connected and link.trouble not in FINAL_TROUBLE:
        if clock() - began > CONNECT_S:
            return False
        if not is_said and clock() - began > SILENT_S:
            say(
                f"{settings.party} cannot take part in run {settings.run}; it waits up to "
                f"{CONNECT_S:.0f} s for the broker at {settings.broker} to tell the others; "
                "the reason follows"
            )
            is_said = True
        await asyncio.sleep(0.02)
    return link.is_connected


def _has_left(settings: PartySettings) -> bool:
    """Whether this party's first message in the run was a withdrawal."""
    path = PartyFiles(settings).journal
    if not path.exists():
        return False
    journal = Journal(path, run=settings.run, party=settings.party)
    try:
        first = next(iter(journal.records()), None)
    finally:
        journal.close()
    sent = chain.decode(first[1], 0).effects if first else ()
    kinds = [decode_header(each.frames).kind for each in sent if isinstance(each, EnvelopeSent)]
    return kinds[:1] == ["withdraw"]
